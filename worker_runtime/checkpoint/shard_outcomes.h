#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_SHARD_OUTCOMES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_SHARD_OUTCOMES_H_

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace ddprun {

// Reports to rank 0, through the store, that other ranks have written their files (shards or copies) of one save. Not
// collective: each rank calls it when its disk is done, from any thread.
class ShardOutcomes {
 public:
  // `save`: a name that is the same on all ranks and new in this store. `ranks`: the ranks that post.
  ShardOutcomes(c10::intrusive_ptr<c10d::Store> store, std::string save, std::vector<int> ranks);

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

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_SHARD_OUTCOMES_H_
