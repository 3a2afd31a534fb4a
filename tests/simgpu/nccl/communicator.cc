#include "tests/simgpu/nccl/communicator.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>
#include <utility>

#include "tests/simgpu/cuda/simcuda.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

// The communicators of this process and its last error. Never destroyed: detached threads use them.
struct Registry {
  std::mutex mutex;
  std::set<ncclComm*> comms;
  std::string last_error;
};

// False for a zombie as well: its connections are closed.
bool IsAlive(pid_t pid) {
  pollfd process = {static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
  if (process.fd < 0) return errno != ESRCH;
  const bool ended = poll(&process, 1, 0) == 1;
  close(process.fd);
  return !ended;
}

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

ncclComm* StartCommunicator(const std::string& name, int size, int rank, bool blocking) {
  Segment* const segment = MapSegment(name);
  if (segment == nullptr) return nullptr;
  int device = 0;
  cudaGetDevice(&device);
  auto* const comm = new ncclComm(name, size, rank, device, blocking, segment);
  {
    std::lock_guard<std::mutex> lock(TheRegistry().mutex);
    TheRegistry().comms.insert(comm);
  }
  comm->creation = std::thread([comm] { comm->Join(); });
  return comm;
}

bool IsUsable(ncclComm* comm) {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  if (comm == nullptr || TheRegistry().comms.count(comm) == 0) return false;
  if (!comm->ended) return true;
  fprintf(stderr, "simulated NCCL: communicator %s was used after its end\n", comm->name.c_str());
  return false;
}

std::string LastErrorOfProcess() {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  return TheRegistry().last_error;
}

}  // namespace simgpu

ncclComm::ncclComm(std::string name, int size, int rank, int device, bool blocking, simgpu::Segment* segment)
    : name(std::move(name)), size(size), rank(rank), device(device), blocking(blocking), segment(segment) {}

void ncclComm::SetLastError(const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_error_ = reason;
  }
  std::lock_guard<std::mutex> lock(simgpu::TheRegistry().mutex);
  simgpu::TheRegistry().last_error = reason;
}

std::string ncclComm::last_error() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

void ncclComm::Fail(ncclResult_t error, const std::string& reason) {
  int success = ncclSuccess, in_progress = ncclInProgress;
  if (state.compare_exchange_strong(success, error) || state.compare_exchange_strong(in_progress, error)) {
    SetLastError(reason);
  }
}

void ncclComm::CompleteCall() {
  int in_progress = ncclInProgress;
  state.compare_exchange_strong(in_progress, ncclSuccess);
}

bool ncclComm::Await(const std::function<bool()>& condition) {
  static const bool detects_lost_ranks = simgpu::NumberSetting("SIMNCCL_REMOTE_ERROR", 1) != 0;
  for (long turn = 0;; ++turn) {
    if (aborted || revoked) return false;
    if (condition()) return true;
    if (turn < 100) {
      sched_yield();
      continue;
    }
    usleep(100);
    if (detects_lost_ranks && turn % 200 == 0) DetectLostRanks();
  }
}

void ncclComm::AwaitAbort() {
  Await([] { return false; });
}

void ncclComm::DetectLostRanks() {
  for (int r = 0; r < size; ++r) {
    const int pid = segment->ranks[r].pid;
    if (r == rank || pid == 0) continue;
    if (segment->ranks[r].gone != 0 || !simgpu::IsAlive(pid)) {
      Fail(ncclRemoteError, "rank " + std::to_string(r) + " has left");
    }
  }
}

// NCCL User Guide, "Using multiple NCCL communicators / one device per rank": a device may be used once per
// communicator. Ranks with different NCCL_HOSTID count as ranks of different hosts. The text is that of NCCL 2.27.
void ncclComm::RefuseSharedDevices() {
  const int own = segment->ranks[rank].device;
  for (int r = 0; r < size; ++r) {
    if (r == rank || segment->ranks[r].device != own || segment->ranks[r].host != segment->ranks[rank].host) continue;
    Fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " + std::to_string(r) +
                               " both on CUDA device " + std::to_string(1000 * own));
  }
}

void ncclComm::Join() {
  static std::once_flag kernels;
  std::call_once(kernels, [] { simgpu::SpendCalibrated(simgpu::kNcclKernelsMs); });
  const char* const host = simgpu::TextSetting("NCCL_HOSTID");
  segment->ranks[rank].host = host == nullptr ? 0 : std::hash<std::string>()(host);
  segment->ranks[rank].device = simcuda_physical(device) + 1;
  segment->ranks[rank].pid = getpid();
  simcuda_point("init");
  const bool complete = Await([this] {
    for (int r = 0; r < size; ++r) {
      if (segment->ranks[r].pid == 0) return false;
    }
    return true;
  });
  simgpu::RemoveSegment(name);
  if (!complete) return Fail(ncclInternalError, "aborted during creation");
  RefuseSharedDevices();
  simgpu::SpendCalibrated(simgpu::kCommunicatorMs);
  CompleteCall();
}

void ncclComm::Revoke() {
  revoked = true;
  segment->ranks[rank].gone = 1;
  if (creation.joinable()) creation.join();
  while (left < begun) usleep(100);
}

void ncclComm::End(bool abort) {
  if (abort) aborted = true;
  segment->ranks[rank].gone = 1;
  if (creation.joinable()) creation.join();
  simgpu::SpendCalibrated(abort ? simgpu::kAbortMs : simgpu::kShutdownMs);
  ended = true;
}
