#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/state/training_state.h"

namespace c10d {
class Store;
}  // namespace c10d

// Copies of a checkpoint in the folders of several ranks.
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

// Reports to rank 0, through the store, that other ranks have written their copies of one save. Not collective: each
// rank calls it when its disk is done, from any thread.
class CopyOutcomes {
 public:
  // `save`: a name that is the same on all ranks and new in this store. `ranks`: the ranks that post.
  CopyOutcomes(c10::intrusive_ptr<c10d::Store> store, std::string save, std::vector<int> ranks);

  // Called on each of `ranks`. An error of the store is not reported: rank 0 then gets the store's error itself.
  void Post(int rank, const absl::Status& outcome) const;

  // Called on rank 0. Returns OK if all ranks have posted OK, else the error of one of them, with its rank. Does not
  // block other uses of the store meanwhile.
  // Errors: DeadlineExceeded names a rank that has not posted; Cancelled: `cancelled` became true; those of the store.
  absl::Status Await(absl::Duration timeout, const std::atomic<bool>& cancelled) const;

 private:
  std::string KeyOf(int rank) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string save_;
  const std::vector<int> ranks_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_COPIES_H_
