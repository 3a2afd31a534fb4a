#ifndef DDPRUN_TESTS_SIMGPU_NCCL_SEGMENT_H_
#define DDPRUN_TESTS_SIMGPU_NCCL_SEGMENT_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <string>

namespace simgpu {

inline constexpr int kMaxRanks = 8;
inline constexpr size_t kSlot = 256 << 10;  // bytes of one rank's chunk of a collective
inline constexpr int kSplits = 64;
inline constexpr size_t kMessage = 64 << 10;  // bytes of a chunk between two ranks

// The arguments of a collective, which must be equal on all ranks.
struct Call {
  enum Kind : int { kNone, kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter };

  Kind kind = kNone;
  int type = 0;  // ncclDataType_t
  int op = 0;    // ncclRedOp_t
  int root = 0;
  size_t count = 0;

  bool operator==(const Call&) const = default;
};

// The memory that the ranks of a communicator share. It begins as zeros, so that the first rank has nothing
// to initialize.
struct Segment {
  struct Rank {
    std::atomic<int> pid;
    std::atomic<int> device;            // index on the host, plus 1
    std::atomic<uint64_t> host;         // hash of NCCL_HOSTID; 0: it is not set
    std::atomic<int> gone;              // 1: aborted or destroyed
    std::atomic<uint64_t> wrote, read;  // chunks
    Call call;                          // call of the chunk last written
    // Calls of ncclCommSplit, and their arguments; an entry is used again after kSplits more.
    std::atomic<int> splits;
    struct {
      int color, key;
    } split[kSplits];
  };

  // Messages from one rank to another, one chunk at a time.
  struct Channel {
    std::atomic<uint64_t> sent, taken;
    size_t size;
  };

  Rank ranks[kMaxRanks];
  std::atomic<int> grows;  // number of ids that ncclCommGetUniqueId has announced; `grow_id` is the last one
  char grow_id[128];
  Channel channels[kMaxRanks][kMaxRanks];
  char slots[kMaxRanks][kSlot];
  char messages[kMaxRanks][kMaxRanks][kMessage];
};

// Maps the segment of this name, which the first caller creates: a file in TEST_TMPDIR, which Bazel removes after the
// test, or else in /dev/shm. It stays mapped, since queued work may use it after an abort. Returns nullptr on an error
// of the system.
Segment* MapSegment(const std::string& name);

// Removes the name; those who have mapped the segment keep it.
void RemoveSegment(const std::string& name);

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_NCCL_SEGMENT_H_
