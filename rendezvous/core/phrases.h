#ifndef DDPRUN_RENDEZVOUS_CORE_PHRASES_H_
#define DDPRUN_RENDEZVOUS_CORE_PHRASES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// Texts for users and logs: reasons of verdicts and of waiting. Pure functions; each returns one line.
namespace ddprun::rendezvous {

// Returns a list such as "a, b and c". `hosts`: the first of `all` hosts; if there are more: "a, b, c and 5 more".
std::string HostList(const std::vector<std::string>& hosts, size_t all);

// Returns why a failure ends the job: "...; restart limit reached (3/3)", "...; restart limit reached (3/3 within 1h)",
// "...; restarts are disabled (--max-restarts 0)" or "...; non-restartable". `window`: the job's restart window; zero:
// none.
std::string DescribeGivingUp(const WorkerFailure& failure, int32_t max_restarts, absl::Duration window);

// Returns "...; no progress: failed 3 times in a row at step 120 (max_failures_at_step)". REQUIRES: failure.has_step().
std::string DescribeNoProgress(const WorkerFailure& failure, int32_t times);

// Returns "timed out: 1 of 2 nodes joined within 10m: node-a", followed by `waits_because` if it is not empty.
std::string DescribeJoinTimeout(const JobSettings& settings, absl::Duration waited, size_t joined,
                                const std::vector<std::string>& hosts, absl::string_view waits_because);

// Returns why a fixed-size job ends when it loses a node (protocol 4.2), e.g. "node-b left: received SIGTERM; the job
// needs all 2 nodes". `what`: the loss. `told_to_stop`: a signal stopped the node.
std::string DescribeTooFew(const JobSettings& settings, absl::string_view what, bool told_to_stop);

// Reasons why a round that has been decided has not started yet (protocol 3.3, 6).
struct HeldUp {
  std::vector<std::string> hosts;  // hosts of the first kMaxHostsNamed nodes whose workers have not stopped
  size_t all_nodes = 0;            // number of all such nodes
  bool by_unknown = false;         // unknown nodes of an earlier server may have workers (protocol 4.5)
  bool by_gone = false;            // known nodes that are gone may have workers (protocol 4.5)
  bool by_backoff = false;         // the restart backoff has not expired (protocol 3.5)
};
// Returns `reason`, followed by what the round waits for.
std::string DescribeHeldUp(absl::string_view reason, const HeldUp& held_up);

// Returns a first cause that blames a node instead of a worker, with exit code 1.
WorkerFailure NodeFailure(absl::string_view host, absl::string_view message);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PHRASES_H_
