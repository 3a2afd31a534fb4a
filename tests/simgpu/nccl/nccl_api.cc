// The functions of NCCL that ProcessGroupNCCL uses (NCCL User Guide, "NCCL API"). Functions that
// no test of this project needs are refused at the end of this file.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/simgpu/nccl/communicator.h"
#include "tests/simgpu/nccl/launch.h"
#include "tests/simgpu/nccl/reduce.h"
#include "tests/simgpu/settings.h"

using simgpu::Call;
using simgpu::IsUsable;
using simgpu::StartCollective;

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 30, 0)
struct ncclWaitSignalDesc_t;
#endif

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  text = comm == nullptr ? simgpu::LastErrorOfProcess() : comm->last_error();
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "%s%d-%d-%lx", simgpu::kIdPrefix, getpid(), ++made,
           now.tv_sec * 1000000000L + now.tv_nsec);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return simgpu::StartCreation(comm, size, id, rank, config == nullptr || config->blocking != 0);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return simgpu::StartCreation(comm, size, id, rank, /*blocking=*/true);
}

// "ncclCommFinalize": waits for the work of a blocking communicator; a nonblocking one is in progress until then.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  if (comm->revoked) return ncclInvalidUsage;  // nccl.h, ncclCommRevoke
  const auto is_done = [comm] { return comm->completed == comm->begun; };
  if (comm->blocking) {
    comm->Await(is_done);
    return ncclSuccess;
  }
  comm->state = ncclInProgress;
  std::thread([comm, is_done] {
    comm->Await(is_done);
    comm->CompleteCall();
  }).detach();
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  comm->End(/*abort=*/false);
  return ncclSuccess;
}

// "ncclCommAbort": ends the work that is still in progress. The guide does not state if it waits for other work that is
// queued on the streams; SIMNCCL_ABORT_WAITS makes it wait.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (!IsUsable(comm)) return ncclInvalidArgument;
  comm->End(/*abort=*/true);
  if (simgpu::NumberSetting("SIMNCCL_ABORT_WAITS", 0) != 0) {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(comm->device);
    cudaDeviceSynchronize();
    cudaSetDevice(before);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!IsUsable(comm)) return ncclInvalidArgument;
  *error = static_cast<ncclResult_t>(comm->state.load());
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  simgpu::BeginGroup();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return simgpu::EndGroup(); }

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return StartCollective(comm, {Call::kAllReduce, type, op, 0, count}, send, receive, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return StartCollective(comm, {Call::kBroadcast, type, 0, root, count}, send, receive, stream);
}

ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return StartCollective(comm, {Call::kReduce, type, op, root, count}, send, receive, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return StartCollective(comm, {Call::kAllGather, type, 0, 0, count}, send, receive, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return StartCollective(comm, {Call::kReduceScatter, type, op, 0, count}, send, receive, stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return simgpu::StartMessage(comm, true, data, count * simgpu::ElementSize(type), peer, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return simgpu::StartMessage(comm, false, data, count * simgpu::ElementSize(type), peer, stream);
}

// Registration only makes NCCL faster.
ncclResult_t ncclCommRegister(ncclComm_t, void* data, size_t, void** handle) {
  *handle = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define NOT_SIMULATED(name, ...) \
  ncclResult_t name(__VA_ARGS__) { return ncclInvalidUsage; }

NOT_SIMULATED(ncclCommInitRankScalable, ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*)
NOT_SIMULATED(ncclCommInitAll, ncclComm_t*, int, const int*)
NOT_SIMULATED(ncclGroupSimulateEnd, ncclSimInfo_t*)
NOT_SIMULATED(ncclAlltoAll, const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)
NOT_SIMULATED(ncclRedOpCreatePreMulSum, ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t)
NOT_SIMULATED(ncclRedOpDestroy, ncclRedOp_t, ncclComm_t)
NOT_SIMULATED(ncclMemAlloc, void**, size_t)
NOT_SIMULATED(ncclMemFree, void*)
NOT_SIMULATED(ncclCommWindowRegister, ncclComm_t, void*, size_t, ncclWindow_t*, int)
NOT_SIMULATED(ncclCommWindowDeregister, ncclComm_t, ncclWindow_t)
NOT_SIMULATED(ncclDevCommCreate, ncclComm_t, const void*, void*)
NOT_SIMULATED(ncclDevCommDestroy, ncclComm_t, const void*)
NOT_SIMULATED(ncclGetLsaMultimemDevicePointer, ncclWindow_t, size_t, void**)
NOT_SIMULATED(ncclGetPeerDevicePointer, ncclWindow_t, size_t, int, void**)
NOT_SIMULATED(ncclWinGetUserPtr, ncclComm_t, ncclWindow_t, void**)
NOT_SIMULATED(ncclGather, const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
NOT_SIMULATED(ncclPutSignal, const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned,
              ncclComm_t, cudaStream_t)
NOT_SIMULATED(ncclSignal, int, int, int, unsigned, ncclComm_t, cudaStream_t)
NOT_SIMULATED(ncclWaitSignal, int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t)
}
