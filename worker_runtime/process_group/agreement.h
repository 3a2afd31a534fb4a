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

// Makes all ranks return the same result. A nullptr group is a single process, rank 0 of 1. Errors of the group itself
// are returned unchanged. Threads: those of the group.
namespace ddprun {

int RankIn(const ProcessGroup* group);
int SizeOf(const ProcessGroup* group);

// A status as a text for another rank: "5 the message"; and back, with the text that followed an OK.
std::string StatusText(const absl::Status& status);
absl::StatusOr<std::string> FromStatusText(const std::string& text);

// Collective: OK if all ranks pass OK; else the error of the lowest rank that failed, the same on all ranks.
absl::Status OutcomeOfAll(ProcessGroup* group, const absl::Status& mine);

// One call of a function that all ranks must call, such as Checkpointer::Save. The ranks wait for each other through
// the store and not in a collective, so the group's timeout does not count while one of them is busy with a slow disk,
// no GPU spins, and a rank that is in another collective is named instead of receiving bytes that are not meant for it.
//
// A wait ends when the group is aborted, when the store is lost, or at its timeout. (A rank that dies is seen by its
// launcher, which stops the others.) All ranks must make the same calls of one object in the same order.
class RankMeeting {
 public:
  // `call` names the function in messages and must be the same on all ranks. `group` must outlive the object.
  RankMeeting(ProcessGroup* group, std::string call);

  // Waits until all ranks have come here. After ten seconds, prints once which ranks are missing.
  // Errors: DeadlineExceeded names the missing ranks and says that all ranks must call the function. The group is
  // aborted with the same message, so that ranks that wait in a collective meanwhile report it, too.
  absl::Status AwaitAll(absl::Duration timeout);

  // Waits for rank `root` and returns its text, or its error, on all ranks. Other ranks' arguments are ignored.
  // Errors: DeadlineExceeded: root took longer than `timeout`.
  absl::StatusOr<std::string> AwaitText(int root, const absl::StatusOr<std::string>& mine, absl::Duration timeout);
  absl::Status AwaitOutcome(int root, const absl::Status& mine, absl::Duration timeout);

 private:
  std::string NextKey();
  // Error: Unavailable: the store is lost; the group was aborted.
  absl::Status WithStore(absl::FunctionRef<void(c10d::Store&)> use);
  // False: not set within `timeout`. `after` is called once, after ten seconds.
  absl::StatusOr<bool> AwaitKey(const std::string& key, absl::Duration timeout, absl::FunctionRef<void()> hint);
  absl::StatusOr<std::string> Missing(const std::string& key, int64_t number);

  ProcessGroup* const group_;
  const std::string call_;
  int steps_ = 0;       // of this object
  int64_t number_ = 0;  // of this call among all in the group; 0: not known yet
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_AGREEMENT_H_
