#include "tests/simgpu/nccl/collectives.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/simgpu/cuda/simcuda.h"
#include "tests/simgpu/nccl/reduce.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

constexpr const char* kNames[] = {"nothing", "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter"};

// A collective of one rank, in chunks that fit a slot.
class Collective {
 public:
  Collective(ncclComm* comm, const Call& call, const char* send, char* receive)
      : comm_(*comm),
        segment_(*comm->segment),
        call_(call),
        send_(send),
        receive_(receive),
        element_(ElementSize(call.type)),
        step_(kSlot / (call.kind == Call::kReduceScatter ? comm->size : 1) / element_) {}

  void Run() {
    for (size_t first = 0; first < std::max<size_t>(call_.count, 1); first += step_) {
      if (!RunChunk(first, std::min(step_, call_.count - first))) return;
    }
  }

 private:
  // False if the collective does not complete.
  bool RunChunk(size_t first, size_t count) {
    const uint64_t number = ++comm_.chunk;
    if (!AwaitAll(&Segment::Rank::read, number - 1)) return false;
    WriteSlot(first, count);
    if (simcuda_point("before") != 0) {
      comm_.Fail(ncclSystemError, "injected");
      comm_.AwaitAbort();
      return false;
    }
    segment_.ranks[comm_.rank].wrote.store(number, std::memory_order_release);
    if (!AwaitAll(&Segment::Rank::wrote, number)) return false;
    simcuda_point("middle");  // the others have this rank's part, and it has none of theirs
    if (!CheckCalls()) {
      comm_.AwaitAbort();
      return false;
    }
    ReadSlots(first, count);
    segment_.ranks[comm_.rank].read.store(number, std::memory_order_release);
    simcuda_point("after");
    return true;
  }

  bool AwaitAll(std::atomic<uint64_t> Segment::Rank::*chunks, uint64_t number) {
    return comm_.Await([&] {
      for (int r = 0; r < comm_.size; ++r) {
        if ((segment_.ranks[r].*chunks).load(std::memory_order_acquire) < number) return false;
      }
      return true;
    });
  }

  void WriteSlot(size_t first, size_t count) {
    segment_.ranks[comm_.rank].call = call_;
    char* const slot = segment_.slots[comm_.rank];
    if (call_.kind == Call::kReduceScatter) {
      for (int r = 0; r < comm_.size; ++r) {
        memcpy(slot + r * step_ * element_, send_ + (r * call_.count + first) * element_, count * element_);
      }
    } else if (call_.kind != Call::kBroadcast || call_.root == comm_.rank) {
      memcpy(slot, send_ + first * element_, count * element_);
    }
  }

  bool CheckCalls() {
    static const bool any_size = NumberSetting("SIMNCCL_ANY_SIZE", 0) != 0;
    static const bool hangs = NumberSetting("SIMNCCL_MISMATCH_HANGS", 0) != 0;
    for (int r = 0; r < comm_.size; ++r) {
      Call other = segment_.ranks[r].call;
      if (any_size) other.count = call_.count;
      if (other == call_) continue;
      char text[200];
      snprintf(text, sizeof text, "rank %d calls %s of %zu x type %d, rank %d %s of %zu x type %d", comm_.rank,
               kNames[call_.kind], call_.count, call_.type, r, kNames[other.kind], other.count, other.type);
      if (!hangs) comm_.Fail(ncclInvalidUsage, text);
      return false;
    }
    return true;
  }

  void ReadSlots(size_t first, size_t count) {
    const size_t part = call_.kind == Call::kReduceScatter ? comm_.rank * step_ * element_ : 0;
    std::vector<const char*> slots(comm_.size);
    for (int r = 0; r < comm_.size; ++r) slots[r] = segment_.slots[r] + part;
    char* const to = receive_ + first * element_;
    switch (call_.kind) {
      case Call::kReduce:
        if (call_.root != comm_.rank) return;
        [[fallthrough]];
      case Call::kAllReduce:
      case Call::kReduceScatter: return Reduce(to, slots, count, call_.type, call_.op);
      case Call::kBroadcast: memcpy(to, slots[call_.root], count * element_); return;
      case Call::kAllGather:
        for (int r = 0; r < comm_.size; ++r) memcpy(to + r * call_.count * element_, slots[r], count * element_);
        return;
      case Call::kNone: return;
    }
  }

  ncclComm& comm_;
  Segment& segment_;
  const Call call_;
  const char* const send_;
  char* const receive_;
  const size_t element_;  // bytes
  const size_t step_;     // elements of a chunk
};

// Moves the next chunk of a message if its channel is ready.
void Advance(ncclComm* comm, Message& message) {
  const int from = message.sends ? comm->rank : message.peer, to = message.sends ? message.peer : comm->rank;
  Segment::Channel& channel = comm->segment->channels[from][to];
  char* const box = comm->segment->messages[from][to];
  const uint64_t sent = channel.sent.load(std::memory_order_acquire);
  const uint64_t taken = channel.taken.load(std::memory_order_acquire);
  if (message.sends ? sent != taken : sent == taken) return;
  const size_t left = message.size - message.done;
  const size_t size = message.sends ? std::min(kMessage, left) : channel.size;
  if (size > left) {
    comm->Fail(ncclInvalidUsage, "rank " + std::to_string(message.peer) + " sends more than this rank receives");
    return;
  }
  char* const data = message.data + message.done;
  if (message.sends) {
    memcpy(box, data, size);
    channel.size = size;
    channel.sent.store(sent + 1, std::memory_order_release);
  } else {
    memcpy(data, box, size);
    channel.taken.store(taken + 1, std::memory_order_release);
  }
  message.done += size;
  message.ended = message.done == message.size;
}

}  // namespace

void RunCollective(ncclComm* comm, const Call& call, const char* send, char* receive) {
  Collective(comm, call, send, receive).Run();
}

void RunMessages(ncclComm* comm, std::vector<Message> messages) {
  comm->Await([&] {
    bool busy[2][kMaxRanks] = {};  // an earlier message of this direction and peer has not ended
    bool all = true;
    for (Message& message : messages) {
      if (message.ended) continue;
      all = false;
      if (!std::exchange(busy[message.sends][message.peer], true)) Advance(comm, message);
    }
    return all;
  });
}

}  // namespace simgpu
