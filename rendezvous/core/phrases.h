#ifndef DDPRUN_RENDEZVOUS_CORE_PHRASES_H_
#define DDPRUN_RENDEZVOUS_CORE_PHRASES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// Texts for users: pure functions, one line each.
namespace ddprun::rendezvous {

// "a, b and c"; with more than kMaxHostsNamed hosts, the first ones "and 5 more".
std::string HostList(const std::vector<std::string>& hosts, size_t all);

// "...; restart limit reached (3/3)", "...; restart limit reached (3/3 within 1h)", "...; restarts are disabled
// (--max-restarts 0)", "...; non-restartable". `window`: of the limit; zero: none.
std::string DescribeGivingUp(const WorkerFailure& failure, int32_t max_restarts, absl::Duration window);

// "...; no progress: failed 3 times in a row at step 120 (max_failures_at_step)". The failure has a step.
std::string DescribeNoProgress(const WorkerFailure& failure, int32_t times);

// "timed out: 1 of 2 nodes joined within 10m: node-a", plus the reason for waiting if a round ran before.
std::string DescribeJoinTimeout(const JobSettings& settings, absl::Duration waited, size_t joined,
                                const std::vector<std::string>& hosts, absl::string_view waits_because);

// Why a fixed-size job ends with a node: "node-b left: received SIGTERM; the job needs all 2 nodes".
std::string DescribeTooFew(const JobSettings& settings, absl::string_view what, bool told_to_stop);

// Why a round that has been decided does not begin yet: `reason`, then what it waits for.
struct HeldUp {
  std::vector<std::string> hosts;  // the first of those whose workers have not stopped
  size_t all_hosts = 0;            // how many there are
  bool by_unknown = false;         // nodes of a server before this one may have workers
  bool by_gone = false;            // nodes that are gone may
  bool by_backoff = false;
};
std::string DescribeHeldUp(absl::string_view reason, const HeldUp& held_up);

// The cause of a failed job when no worker is to blame.
WorkerFailure NodeFailure(absl::string_view host, absl::string_view message);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PHRASES_H_
