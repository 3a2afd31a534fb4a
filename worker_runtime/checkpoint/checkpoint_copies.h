#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpoint_names.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {

// Where this process writes. Not collective. Errors: those of FileSystem.
absl::StatusOr<CheckpointPlace> PlaceOf(CheckpointFolder& folder);

// Collective: RanksOfCopies. Rank 0 prints a warning if there are too few. `group` nullptr: a single process.
absl::StatusOr<std::vector<int>> PlaceCopies(ProcessGroup* group, const CheckpointPlace& mine, int copies);

// Collective, before several ranks write the same checkpoint: `parts` becomes rank 0's. Parameters and the optimizer's
// state are the same on all ranks already; what may differ is sent by rank 0: buffers, added tensors, all metadata.
// `parts` has a whole state on the ranks that write, rank 0 among them, and is empty on the others; `made` is the
// outcome of getting it.
// Errors, the same on all ranks: `made`, with the rank; InvalidArgument names a tensor that is not as on rank 0; those
// of the group.
absl::Status TakeRankZeros(ProcessGroup& group, const absl::Status& made, StateParts& parts);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_
