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

// Memory that several ranks of one host share, with a counter for each by which they wait for each other. It has no name
// in any file system and goes away with the last process that maps it, however that ends.
//
// Rank 0 makes it and gives its address() to the others, which open it; from then on all have the same. Ranks may be
// processes, or threads of one. Each object is used by one thread at a time.
class SharedSegment {
 public:
  // Memory of `size` ranks with `slot_bytes` (a multiple of 64) for each, in this process. Errors: ResourceExhausted if
  // there is not so much memory.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Make(int size, size_t slot_bytes);

  // The memory that rank 0 of this host made. Errors: FailedPrecondition if `address` is not one of a segment that this
  // process can see: the maker runs on another host, in another container, or as another user.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(absl::string_view address, int rank);

  // Tells the others that this rank is gone.
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // Host, process, descriptor and a random number, by which Open finds the memory and knows that it is the right one.
  std::string address() const;
  // Once all have opened it: nobody else can any more.
  void CloseAddress();

  int rank() const { return rank_; }
  int size() const;
  size_t slot_bytes() const;
  // The memory of one rank, aligned to 64 bytes. All may read and write it; who when is for them to agree on by Meet.
  std::byte* slot(int rank) const;

  // Returns once all ranks have called it as often as this one; what they wrote before can be read after. Spins for some
  // microseconds, then sleeps. `check`, if given, is asked every now and then whether to give up, and returns why.
  // Errors: DeadlineExceeded after `timeout`, naming the ranks that did not come; Unavailable if one of them is gone;
  // what `check` returned. After an error the segment is of no more use to anybody.
  using Check = std::function<absl::Status()>;
  absl::Status Meet(absl::Duration timeout, const Check& check);

 private:
  struct Header;
  struct RankState;

  SharedSegment(int fd, void* memory, size_t bytes, int rank);
  RankState& state(int rank) const;
  bool AllCame(uint32_t turn) const;
  std::vector<int> Missing(uint32_t turn) const;
  absl::Status CheckPeers(uint32_t turn) const;
  void Wake() const;

  int fd_;  // of the maker, until CloseAddress
  void* const memory_;
  const size_t bytes_;
  const int rank_;
  uint32_t turn_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_SHARED_SEGMENT_H_
