#include "tests/simgpu/nccl/launch.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/simgpu/cuda/simcuda.h"
#include "tests/simgpu/nccl/collectives.h"
#include "tests/simgpu/nccl/communicator.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

struct Pending {
  ncclComm* comm;
  cudaStream_t stream;
  std::function<void()> collective;
  std::vector<Message> messages;  // if there is no collective
};

thread_local int t_depth = 0;
thread_local std::vector<Pending> t_pending;
thread_local std::vector<ncclComm*> t_creating;

// Calls on one communicator run in the order of the host, also from several streams.
void Launch(const Pending& pending) {
  ncclComm* const comm = pending.comm;
  const uint64_t number = ++comm->begun;
  Enqueue(pending.stream, [comm, number, collective = pending.collective, messages = pending.messages] {
    if (comm->Await([&] { return comm->completed == number - 1; })) {
      if (collective) {
        collective();
      } else {
        RunMessages(comm, messages);
      }
      if (!comm->aborted && !comm->revoked) comm->completed = number;
    }
    ++comm->left;
  });
}

// A call on a nonblocking communicator may return ncclInProgress before it is launched. SIMNCCL_LAUNCH_MS makes that
// time long.
void LaunchLater(std::vector<Pending> all, long delay_ms) {
  int device = 0;
  cudaGetDevice(&device);
  for (const Pending& pending : all) pending.comm->state = ncclInProgress;
  std::thread([all = std::move(all), device, delay_ms] {
    cudaSetDevice(device);
    usleep(delay_ms * 1000);
    for (const Pending& pending : all) {
      if (!pending.comm->aborted && !pending.comm->revoked) Launch(pending);
      pending.comm->CompleteCall();
    }
  }).detach();
}

ncclResult_t AwaitCreation() {
  ncclResult_t result = ncclSuccess;
  for (ncclComm* const comm : std::exchange(t_creating, {})) {
    if (!comm->blocking) {
      result = ncclInProgress;
      continue;
    }
    while (comm->state == ncclInProgress) usleep(200);
    if (comm->state != ncclSuccess) result = static_cast<ncclResult_t>(comm->state.load());
  }
  return result;
}

ncclResult_t Flush() {
  const ncclResult_t result = AwaitCreation();
  std::vector<Pending> all = std::exchange(t_pending, {});
  static const long delay_ms = NumberSetting("SIMNCCL_LAUNCH_MS", 0);
  const bool blocking = std::any_of(all.begin(), all.end(), [](const Pending& p) { return p.comm->blocking; });
  if (delay_ms > 0 && !all.empty() && !blocking) {
    LaunchLater(std::move(all), delay_ms);
    return ncclInProgress;
  }
  for (const Pending& pending : all) Launch(pending);
  return result;
}

bool IsOnDevice(const void* buffer, int device) {
  cudaPointerAttributes attributes;
  if (buffer == nullptr || cudaPointerGetAttributes(&attributes, buffer) != cudaSuccess) return true;
  return attributes.type == cudaMemoryTypeHost ||
         (attributes.type == cudaMemoryTypeDevice && attributes.device == device);
}

ncclResult_t Refuse(ncclComm_t comm, const std::string& reason) {
  comm->SetLastError(reason);
  return ncclInvalidArgument;
}

ncclResult_t Check(ncclComm_t comm, cudaStream_t stream, int peer, std::initializer_list<const void*> buffers) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  const int state = comm->state;
  if (comm->revoked || comm->suspended) {
    comm->SetLastError(comm->revoked ? "used after ncclCommRevoke" : "used while suspended");
    return ncclInvalidUsage;
  }
  if (state == ncclInProgress) return Refuse(comm, "used while an earlier call is in progress");
  if (state != ncclSuccess) return static_cast<ncclResult_t>(state);
  if (peer < 0 || peer >= comm->size) return Refuse(comm, "no rank " + std::to_string(peer));
  const std::string device = std::to_string(comm->device);
  if (simcuda_device_of_stream(stream) != comm->device) return Refuse(comm, "the stream is not of device " + device);
  for (const void* const buffer : buffers) {
    if (!IsOnDevice(buffer, comm->device)) return Refuse(comm, "a buffer is not memory of device " + device);
  }
  return ncclSuccess;
}

}  // namespace

void BeginGroup() { ++t_depth; }

ncclResult_t EndGroup() {
  if (t_depth == 0) return ncclInvalidUsage;
  return --t_depth == 0 ? Flush() : ncclSuccess;
}

ncclResult_t StartCollective(ncclComm_t comm, const Call& call, const void* send, void* receive, cudaStream_t stream) {
  if (const ncclResult_t error = Check(comm, stream, call.root, {send, receive}); error != ncclSuccess) return error;
  if (call.op >= ncclNumOps) return ncclInvalidArgument;
  const auto* const from = static_cast<const char*>(simcuda_view(send));
  auto* const to = static_cast<char*>(simcuda_view(receive));
  t_pending.push_back({comm, stream, [=] { RunCollective(comm, call, from, to); }, {}});
  return t_depth == 0 ? Flush() : ncclSuccess;
}

ncclResult_t StartMessage(ncclComm_t comm, bool sends, const void* data, size_t size, int peer, cudaStream_t stream) {
  if (const ncclResult_t error = Check(comm, stream, peer, {data}); error != ncclSuccess) return error;
  const Message message = {sends, static_cast<char*>(simcuda_view(data)), size, peer};
  const auto found = std::find_if(t_pending.begin(), t_pending.end(), [&](const Pending& pending) {
    return pending.comm == comm && pending.stream == stream && !pending.collective;
  });
  if (found == t_pending.end()) {
    t_pending.push_back({comm, stream, nullptr, {message}});
  } else {
    found->messages.push_back(message);
  }
  return t_depth == 0 ? Flush() : ncclSuccess;
}

ncclResult_t StartCreation(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank, bool blocking) {
  *comm = nullptr;
  if (size < 1 || size > kMaxRanks || rank < 0 || rank >= size) return ncclInvalidArgument;
  if (strncmp(id.internal, kIdPrefix, strlen(kIdPrefix)) != 0) return ncclInvalidArgument;
  simcuda_point("create");
  *comm = StartCommunicator(id.internal, size, rank, blocking);
  if (*comm == nullptr) return ncclSystemError;
  t_creating.push_back(*comm);
  return t_depth > 0 ? ncclSuccess : Flush();
}

}  // namespace simgpu
