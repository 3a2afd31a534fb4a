#ifndef DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_
#define DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/report/missing_rank.h"
#include "rendezvous/core/messages.h"

// One-line texts about who is waited for. No newline at the end.
namespace ddprun::launcher {

// "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m58s"
// "waiting for node-b; 1 of 2 joined (joined: node-a); timing out in 9m58s", where it is known who is expected
// "2 nodes joined (min 2, max 4); starting in 28s unless more join (joined: node-a, node-b; missing: node-c, node-d)"
// "hot spare: the job runs on 2 nodes (joined: node-a, node-b); standing by to replace a lost node"
// A reason, why it waits again, comes in front.
std::string WaitingText(const rendezvous::Waiting& waiting, const std::vector<std::string>& expected_hosts);

// Those of `expected_hosts` that have not joined; none if not all that joined are named.
std::vector<std::string> AbsentHosts(const rendezvous::Waiting& waiting,
                                     const std::vector<std::string>& expected_hosts);

// "node-a, node-b and 3 more".
std::string HostsText(const std::vector<std::string>& hosts);

// "rank 3 on host b (local rank 1, pid 77) has not joined after 10 s; ranks 0-2 are waiting for it"
// "ranks 2-3, 5 (on hosts b, c) have not joined after 10 s; ranks 0-1, 4 are waiting for them"
// REQUIRES: `missing` is not empty.
std::string MissingRanksText(const std::vector<MissingRank>& missing, const std::vector<int32_t>& waiting_ranks,
                             absl::Duration waited);

// "0-2, 5, 7-9": sorted, without repetition. A list of more than 8 ranges is cut: "0, 2, 4, ... (500 in all)".
std::string RangesText(std::vector<int32_t> ranks);

// `text` in at most `width` bytes, for a status line: without what stands in parentheses, from the last on, as far as
// that is needed; then without its middle. REQUIRES: width >= 16.
std::string FitLine(absl::string_view text, size_t width);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_
