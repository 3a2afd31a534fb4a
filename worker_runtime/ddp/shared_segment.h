#ifndef DDPRUN_WORKER_RUNTIME_DDP_SHARED_SEGMENT_H_
#define DDPRUN_WORKER_RUNTIME_DDP_SHARED_SEGMENT_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun {

// Memory shared by the ranks of one host, with a counter per rank for barriers. It has no name in any file system and
// is freed with the last process that maps it, however that process ends.
//
// Rank 0 creates it and sends its address() to the others, which open it; after that all ranks are equal. Ranks may be
// processes or threads of one process. Each object is used by one thread at a time.
class SharedSegment {
 public:
  // Creates memory for `size` ranks with `slot_bytes` (a multiple of 64) each. Errors: ResourceExhausted if there is
  // not enough memory.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Make(int size, size_t slot_bytes);

  // Opens the memory that rank 0 created. Errors: FailedPrecondition if this process can't access it, because rank 0
  // runs on another host, in another container, or as another user.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(absl::string_view address, int rank);

  // Tells the other ranks that this rank has left.
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // Host, process, descriptor and a random number, with which Open finds and verifies the memory.
  std::string address() const;
  // To be called once all ranks have opened it. Afterwards no process can open it any more.
  void CloseAddress();

  int rank() const { return rank_; }
  int size() const;
  size_t slot_bytes() const;
  // The memory of one rank, aligned to 64 bytes. All ranks may read and write it; they synchronize with Meet.
  std::byte* slot(int rank) const;

  // A barrier: returns once all ranks have called it as often as this one. Writes before it are visible after it. Spins
  // for some microseconds, then sleeps. `check`, if given, is called from time to time; an error from it ends the wait.
  // Errors: DeadlineExceeded after `timeout`, with the missing ranks; Unavailable if one of them has died or left; the
  // error that `check` returned. After an error the segment is unusable for all ranks.
  using Check = std::function<absl::Status()>;
  absl::Status EnterBarrier(absl::Duration timeout, const Check& check);

 private:
  struct Header;
  struct RankState;

  SharedSegment(int fd, void* memory, size_t bytes, int rank);
  RankState& state(int rank) const;
  bool AllArrived(uint32_t turn) const;
  std::vector<int> Missing(uint32_t turn) const;
  absl::Status CheckPeers(uint32_t turn) const;
  void Wake() const;

  int fd_;  // set on rank 0, until CloseAddress; else -1
  void* const memory_;
  const size_t bytes_;
  const int rank_;
  uint32_t turn_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_SHARED_SEGMENT_H_
