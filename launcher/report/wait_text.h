#ifndef DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_
#define DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/report/missing_rank.h"
#include "rendezvous/core/messages.h"

// One-line texts about missing nodes and ranks, without a newline at the end.
namespace ddprun::launcher {

// Returns, prefixed with the server's reason for waiting again if there is one, for example
// "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m58s"
// "waiting for node-b; 1 of 2 joined (joined: node-a); timing out in 9m58s", if the expected nodes are known
// "2 nodes joined (min 2, max 4); starting in 28s unless more join (joined: node-a, node-b; missing: node-c, node-d)"
// "hot spare: the job runs on 2 nodes (joined: node-a, node-b); standing by to replace a lost node"
std::string WaitingText(const rendezvous::Waiting& waiting, const std::vector<std::string>& expected_hosts);

// Returns the `expected_hosts` that have not joined; empty if the names of some joined nodes are unknown.
std::vector<std::string> AbsentHosts(const rendezvous::Waiting& waiting,
                                     const std::vector<std::string>& expected_hosts);

// "node-a, node-b and 3 more".
std::string HostsText(const std::vector<std::string>& hosts);

// "rank 3 on host b (local rank 1, pid 77) has not joined after 10 s; ranks 0-2 are waiting for it"
// "ranks 2-3, 5 (on hosts b, c) have not joined after 10 s; ranks 0-1, 4 are waiting for them"
// REQUIRES: `missing` is not empty.
std::string MissingRanksText(const std::vector<MissingRank>& missing, const std::vector<int32_t>& waiting_ranks,
                             absl::Duration waited);

// Shortens `text` to at most `width` bytes for a status line: drops as many parenthesized parts as necessary, the last
// one first, then cuts out the middle. REQUIRES: width >= 16.
std::string FitLine(absl::string_view text, size_t width);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_
