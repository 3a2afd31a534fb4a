#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_AGREEMENT_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_AGREEMENT_H_

#include <c10/core/Device.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker_runtime/process_group/process_group.h"

namespace c10d {
class Store;
}  // namespace c10d

// Functions that make all ranks return the same result. A nullptr group is a single process, rank 0 of 1. Errors of the
// group itself are returned unchanged. Threads: same rules as ProcessGroup.
namespace ddprun {

int RankIn(const ProcessGroup* group);
int SizeOf(const ProcessGroup* group);

// Encodes a status for another rank: "5 the message". FromStatusText decodes it, and returns the text that followed an
// OK.
std::string StatusText(const absl::Status& status);
absl::StatusOr<std::string> FromStatusText(const std::string& text);

// Collective. Returns OK if all ranks pass OK, else the error of the lowest rank that failed, the same on all ranks.
absl::Status OutcomeOfAll(ProcessGroup* group, const absl::Status& mine);

// A call of a function that all ranks must call, such as Checkpointer::Save. The ranks wait for each other through the
// store and not in a collective, so that the group's timeout does not apply while a rank is busy with a slow disk, no
// GPU spins, and an error names a rank that is in another collective, which would otherwise receive mismatched bytes.
//
// A wait ends when the group is aborted, when the store is lost, or at its timeout. (The launcher detects a rank that
// dies, and stops the others.) All ranks must make the same calls on one object in the same order.
class RankMeeting {
 public:
  // `call` names the function in messages and must be the same on all ranks. `group` must outlive the object.
  RankMeeting(ProcessGroup* group, std::string call);

  // Waits until all ranks have entered this call. After ten seconds, prints once which ranks are missing.
  // Errors: DeadlineExceeded names the missing ranks and says that all ranks must call the function. The group is
  // aborted with the same message, so that ranks that are blocked in a collective report it, too.
  absl::Status AwaitAll(absl::Duration timeout);

  // Waits for rank `root` and returns its text, or its error, on all ranks. Other ranks' arguments are ignored.
  // Errors: DeadlineExceeded: root took longer than `timeout`.
  absl::StatusOr<std::string> AwaitText(int root, const absl::StatusOr<std::string>& mine, absl::Duration timeout);
  absl::Status AwaitOutcome(int root, const absl::Status& mine, absl::Duration timeout);

 private:
  std::string NextKey();
  // Errors: Unavailable if the store is lost; the group is then aborted.
  absl::Status WithStore(absl::FunctionRef<void(c10d::Store&)> use);
  // Returns false if `key` was not set within `timeout`. `hint` is called once, after ten seconds.
  absl::StatusOr<bool> AwaitKey(const std::string& key, absl::Duration timeout, absl::FunctionRef<void()> hint);
  absl::StatusOr<std::string> Missing(const std::string& key, int64_t number);

  ProcessGroup* const group_;
  const std::string call_;
  int steps_ = 0;       // number of steps of this object
  int64_t number_ = 0;  // number of this call among all in the group; 0: not known yet
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_AGREEMENT_H_
