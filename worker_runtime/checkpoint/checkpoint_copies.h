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

// Returns the folder and host on which this process writes. Not collective. Errors: those of FileSystem.
absl::StatusOr<CheckpointPlace> PlaceOf(CheckpointFolder& folder);

// Collective: chooses the ranks that write copies (RanksOfCopies). Rank 0 prints a warning if there are too few.
// `group` nullptr: a single process.
absl::StatusOr<std::vector<int>> ChooseCopyRanks(ProcessGroup* group, const CheckpointPlace& mine, int copies);

// Collective, before several ranks write the same checkpoint: replaces `parts` with rank 0's. Parameters and the
// optimizer's state are the same on all ranks already; rank 0 sends what may differ: buffers, added tensors, all
// metadata. `parts` holds a whole state on the ranks that write, including rank 0, and is empty on the others; `made`
// is the status of creating it.
// Errors, the same on all ranks: `made`, with the rank; InvalidArgument names a tensor whose name, shape or type
// differs from rank 0's; those of the group.
absl::Status BroadcastRankZeroParts(ProcessGroup& group, const absl::Status& made, StateParts& parts);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_
