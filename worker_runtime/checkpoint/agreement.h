#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_AGREEMENT_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_AGREEMENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/process_group/process_group.h"

// Makes all ranks return the same result. All functions are collective. A nullptr group is a single process, rank 0 of
// 1. Errors of the group itself are returned unchanged.
namespace ddprun {

int RankIn(const ProcessGroup* group);
int SizeOf(const ProcessGroup* group);

// Where this group's tensors must live: the CPU, or the current device of a group that knows no other.
c10::Device DeviceOf(const ProcessGroup& group);

// Returns rank 0's status on all ranks. Other ranks' arguments are ignored.
absl::Status OutcomeOfRankZero(ProcessGroup* group, const absl::Status& mine);

// OK if all ranks pass OK; else the error of the lowest rank that failed, prefixed with the rank if it is another one.
absl::Status OutcomeOfAll(ProcessGroup* group, const absl::Status& mine);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_AGREEMENT_H_
