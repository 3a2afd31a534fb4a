// Communicators that are made of others (split; shrink since NCCL 2.27, grow since 2.30), revoked and suspended (2.30).
// The rules are those of the comments of nccl.h 2.30 and of the NCCL User Guide, "Communicator Creation and Management
// Functions".
#include <nccl.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "tests/simgpu/nccl/communicator.h"
#include "tests/simgpu/nccl/launch.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 30, 0)
using ncclCommMemStat_t = int;
#endif

namespace {

using simgpu::IsUsable;

bool IsBlocking(ncclComm_t parent, const ncclConfig_t* config) {
  if (config == nullptr) return parent == nullptr || parent->blocking;
  return config->blocking != 0;
}

// The id that the root has announced to the other ranks of `parent`; false if one of them has left before.
bool AwaitId(ncclComm_t parent, ncclUniqueId* id) {
  simgpu::Segment& shared = *parent->segment;
  const bool announced = parent->Await([&] { return shared.grows >= parent->grows || parent->state != ncclSuccess; });
  if (!announced || shared.grows < parent->grows) return false;
  memcpy(id->internal, shared.grow_id, sizeof id->internal);
  return true;
}

// Creates a communicator whose name all of its ranks derive from that of `parent`.
ncclResult_t CreateFrom(ncclComm_t parent, const std::string& suffix, int size, int rank, ncclComm_t* created,
                        const ncclConfig_t* config) {
  ncclUniqueId id{};
  const std::string name = parent->name + suffix;
  if (name.size() >= sizeof id.internal) return ncclInternalError;
  memcpy(id.internal, name.c_str(), name.size());
  return simgpu::StartCreation(created, size, id, rank, IsBlocking(parent, config));
}

}  // namespace

extern "C" {

// Waits for the other ranks. Ranks of the new communicator are ordered by key, then by rank.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* created, ncclConfig_t* config) {
  *created = nullptr;
  if (!IsUsable(comm)) return ncclInvalidArgument;
  if (comm->state != ncclSuccess) return ncclInvalidUsage;
  auto& ranks = comm->segment->ranks;
  const int entry = comm->splits % simgpu::kSplits;
  ranks[comm->rank].split[entry] = {color, key};
  const int number = ++ranks[comm->rank].splits;
  comm->splits = number;
  const bool complete = comm->Await([&] {
    return comm->state != ncclSuccess ||
           std::all_of(ranks, ranks + comm->size, [&](const auto& rank) { return rank.splits >= number; });
  });
  if (!complete || comm->state != ncclSuccess) return ncclRemoteError;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int size = 0, before = 0;
  for (int rank = 0; rank < comm->size; ++rank) {
    const auto& other = ranks[rank].split[entry];
    if (other.color != color) continue;
    ++size;
    if (std::pair(other.key, rank) < std::pair(key, comm->rank)) ++before;
  }
  return CreateFrom(comm, "-split" + std::to_string(number) + "c" + std::to_string(color), size, before, created,
                    config);
}

// Ranks of the new communicator keep their order. Flag 1, NCCL_SHRINK_ABORT: work in progress is ended first.
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* created, ncclConfig_t* config,
                            int flags) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  if (flags == 1) {
    comm->Revoke();
  } else if (!comm->revoked && comm->state != ncclSuccess) {
    return ncclInvalidUsage;
  }
  if (std::find(excluded, excluded + count, comm->rank) != excluded + count) return ncclInvalidArgument;
  const auto before = std::count_if(excluded, excluded + count, [&](int rank) { return rank < comm->rank; });
  return CreateFrom(comm, "-shrink" + std::to_string(++comm->shrinks), comm->size - count,
                    comm->rank - static_cast<int>(before), created, config);
}

// "stops all in-flight operations and marks communicator state as ncclInProgress. The state will change to ncclSuccess
// when the communicator is quiescent".
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (!IsUsable(comm) || flags != 0) return ncclInvalidArgument;
  comm->state = ncclInProgress;
  comm->revoked = true;
  const auto revoke = [comm] {
    comm->Revoke();
    comm->state = ncclSuccess;
  };
  if (comm->blocking) {
    revoke();
    return ncclSuccess;
  }
  std::thread(revoke).detach();
  return ncclInProgress;
}

// Announces the id to the other ranks of `comm`, which wait for it in ncclCommGrow.
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  const ncclResult_t made = ncclGetUniqueId(id);
  if (made != ncclSuccess) return made;
  memcpy(comm->segment->grow_id, id->internal, sizeof id->internal);
  ++comm->segment->grows;
  return ncclSuccess;
}

// Ranks of `comm` keep their ranks, and pass -1 and no id (the root may pass it); new ranks have it from elsewhere.
ncclResult_t ncclCommGrow(ncclComm_t comm, int size, const ncclUniqueId* id, int rank, ncclComm_t* created,
                          ncclConfig_t* config) {
  if (comm == nullptr) {
    if (id == nullptr) return ncclInvalidArgument;
    return simgpu::StartCreation(created, size, *id, rank, IsBlocking(comm, config));
  }
  if (!IsUsable(comm) || rank != -1 || size < comm->size) return ncclInvalidArgument;
  if (comm->revoked || comm->state != ncclSuccess) return ncclInvalidUsage;
  ncclUniqueId announced;
  ++comm->grows;
  if (id != nullptr) {
    announced = *id;
  } else if (!AwaitId(comm, &announced)) {
    return ncclRemoteError;
  }
  return simgpu::StartCreation(created, size, announced, comm->rank, IsBlocking(comm, config));
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  if (comm->suspended.exchange(true)) return ncclInvalidUsage;
  return ncclSuccess;
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  return comm->suspended.exchange(false) ? ncclSuccess : ncclInvalidUsage;
}

// `stat`: 1, if memory is suspended; there is none of the other kinds.
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  *value = stat == 1 && comm->suspended;
  return ncclSuccess;
}
}
