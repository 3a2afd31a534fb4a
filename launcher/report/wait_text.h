#ifndef DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_
#define DDPRUN_LAUNCHER_REPORT_WAIT_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// Texts about waiting: durations, the nodes that have not joined a round, and the ranks that have not connected to its
// store. One line each, without a newline at the end.
namespace ddprun::launcher {

// Formats remaining time in whole seconds, rounded up, so that "0s" means that none is left: "9m58s", "2h0m5s".
std::string RemainingText(absl::Duration remaining);

// Formats elapsed time, rounded down: milliseconds below a second, tenths below a minute, then whole seconds: "350ms",
// "12.3s", "1m5s".
std::string ElapsedText(absl::Duration elapsed);

// A rank that has not connected to the round's store.
struct MissingRank {
  int rank = 0;
  std::optional<int> local_rank;  // unset until its launcher has registered
  std::string host;               // empty until then
  uint32_t pid = 0;               // 0 until then

  bool operator==(const MissingRank&) const = default;
};

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
