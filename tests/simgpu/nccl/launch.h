#ifndef DDPRUN_TESTS_SIMGPU_NCCL_LAUNCH_H_
#define DDPRUN_TESTS_SIMGPU_NCCL_LAUNCH_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tests/simgpu/nccl/segment.h"

// NCCL User Guide, "Group Calls": between ncclGroupStart and ncclGroupEnd of a thread, calls are collected; the end
// launches them and waits for the creation of blocking communicators.
namespace simgpu {

void BeginGroup();
ncclResult_t EndGroup();

// Enqueues a collective, or a message of `size` bytes, on a stream, or adds it to the open group. Refuses streams and
// buffers of another device, and calls while an earlier one is in progress.
ncclResult_t StartCollective(ncclComm_t comm, const Call& call, const void* send, void* receive, cudaStream_t stream);
ncclResult_t StartMessage(ncclComm_t comm, bool sends, const void* data, size_t size, int peer, cudaStream_t stream);

// Creates a communicator on the current device.
ncclResult_t StartCreation(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank, bool blocking);

// Begin of the ids that ncclGetUniqueId makes, which are the names of segments.
inline constexpr char kIdPrefix[] = "/simnccl-";

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_NCCL_LAUNCH_H_
