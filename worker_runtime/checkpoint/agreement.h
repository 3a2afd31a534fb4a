#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_AGREEMENT_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_AGREEMENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

// Ranks that return the same. All functions are collective. A group of nullptr is this process alone, as rank 0 of 1.
// Errors of the group itself are returned as they are.
namespace ddprun {

int RankIn(const ProcessGroup* group);
int SizeOf(const ProcessGroup* group);

// Where this group's tensors must live: the CPU, or the current device of a group that knows no other.
c10::Device DeviceOf(const ProcessGroup& group);

// Rank 0's outcome, on all ranks. Others' arguments are not looked at.
absl::Status OutcomeOfRankZero(ProcessGroup* group, const absl::Status& mine);

// OK if all ranks have OK; else the error of the first rank that has one, with the rank in front if it is another's.
absl::Status OutcomeOfAll(ProcessGroup* group, const absl::Status& mine);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_AGREEMENT_H_
