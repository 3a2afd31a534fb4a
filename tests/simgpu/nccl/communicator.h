#ifndef DDPRUN_TESTS_SIMGPU_NCCL_COMMUNICATOR_H_
#define DDPRUN_TESTS_SIMGPU_NCCL_COMMUNICATOR_H_

#include <nccl.h>
#include <stdint.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "tests/simgpu/nccl/segment.h"

// A communicator of one rank; the name is NCCL's.
//
// NCCL User Guide, "Fault Tolerance": ncclCommGetAsyncError reports errors that occur after a call has returned, while
// the work itself keeps waiting; ncclCommAbort ends the work and frees the communicator. "Creating a communicator with
// options": with blocking = 0 a call returns ncclInProgress, and ncclCommGetAsyncError reports how it ended.
//
// Thread-safe. Never deleted, so that a use after its end is detected and refused; NCCL's behavior is undefined there.
struct ncclComm {
 public:
  ncclComm(std::string name, int size, int rank, int device, bool blocking, simgpu::Segment* segment);

  // Reports an error through ncclCommGetAsyncError. The first one stays.
  void Fail(ncclResult_t error, const std::string& reason);

  // Ends ncclInProgress with ncclSuccess.
  void CompleteCall();

  // The text of ncclGetLastError.
  void SetLastError(const std::string& reason);
  std::string last_error();

  // Waits until `condition` holds; returns false once the communicator is aborted or revoked. Meanwhile it detects
  // ranks that died or left, if SIMNCCL_REMOTE_ERROR is on.
  bool Await(const std::function<bool()>& condition);

  // Waits for the abort or revoke, as work after an error does.
  void AwaitAbort();

  // The body of the thread that creates the communicator: waits for all ranks.
  void Join();

  // Ends the work that is in progress, for good, and waits until none of it is left. Other ranks see it as having left.
  void Revoke();

  // Ends the communicator: ncclCommAbort and ncclCommDestroy.
  void End(bool abort);

  const std::string name;
  const int size;
  const int rank;
  const int device;
  const bool blocking;
  simgpu::Segment* const segment;

  std::atomic<bool> aborted{false}, revoked{false}, suspended{false};
  std::atomic<bool> ended{false};
  std::atomic<int> state{ncclInProgress};  // an ncclResult_t
  // Calls, in the order of the host; `left`: the stream has passed them, also without completing them.
  std::atomic<uint64_t> begun{0}, completed{0}, left{0};
  uint64_t chunk = 0;  // chunks of collectives, used by one stream at a time
  int shrinks = 0, grows = 0, splits = 0;
  std::thread creation;

 private:
  void DetectLostRanks();
  void RefuseSharedDevices();

  std::mutex mutex_;
  std::string last_error_;
};

namespace simgpu {

// Creates a communicator on the current device and starts its thread. Returns nullptr on an error of the system.
ncclComm* StartCommunicator(const std::string& name, int size, int rank, bool blocking);

// True for a communicator of this process that has not ended.
bool IsUsable(ncclComm* comm);

// The text of ncclGetLastError(nullptr).
std::string LastErrorOfProcess();

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_NCCL_COMMUNICATOR_H_
