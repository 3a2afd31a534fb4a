#ifndef DDPRUN_RENDEZVOUS_CORE_PHRASES_H_
#define DDPRUN_RENDEZVOUS_CORE_PHRASES_H_

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/exit_codes.h"

// Texts for users and logs: what a WorkerFailure says, and the reasons of verdicts and of waiting. Pure functions;
// those that return a text return one line.
namespace ddprun::rendezvous {

using worker_contract::kExitCannotExecute;
using worker_contract::kExitNotFound;

// True for a worker that is stuck in the kernel: still alive long after SIGKILL, or in uninterruptible sleep for too
// long. On the wire it is killed by SIGKILL and non-restartable. The process may hold its device, so the node can't
// start another worker there.
inline bool IsStuckInKernel(const WorkerFailure& failure) {
  return failure.signal() == SIGKILL && !failure.restartable();
}

// True if a restart may help: that of the worker, or of one on another node for a worker that is stuck in the kernel.
inline bool AllowsRestart(const WorkerFailure& failure) { return failure.restartable() || IsStuckInKernel(failure); }

// Returns how the worker ended: "exited with code 3", "was killed by SIGKILL (OOM-killed)", "was not started: no such
// program", "exited with 78 (non-restartable)", "reported a failure" (the worker is alive), "is stuck in the
// kernel", "was lost" (the failure is a node's).
std::string DescribeEnd(const WorkerFailure& failure);

// Returns which worker failed: "rank 3 on node-b (local rank 1, pid 77)"; "node node-b" if the failure is a node's.
std::string DescribeWho(const WorkerFailure& failure);

// Returns one sentence without a period: DescribeWho, DescribeEnd, the failure's message unless the sentence already
// contains it, and the worker's last progress.
std::string DescribeFailure(const WorkerFailure& failure);

// Truncates each text of the failure to `max_bytes`. REQUIRES: max_bytes >= 256.
void ShortenTexts(size_t max_bytes, WorkerFailure* failure);

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
