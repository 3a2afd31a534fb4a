#ifndef DDPRUN_TESTS_SIMGPU_NCCL_COLLECTIVES_H_
#define DDPRUN_TESTS_SIMGPU_NCCL_COLLECTIVES_H_

#include <vector>

#include "tests/simgpu/nccl/communicator.h"

// The work of NCCL's kernels, run by the thread of a stream. It waits without limit for ranks that do not come, until
// the communicator is aborted.
namespace simgpu {

// NCCL User Guide, "Collective Operations". Each rank writes a chunk into its slot, waits for the others, and reads.
// Ranks with different arguments get ncclInvalidUsage; NCCL waits forever or mixes the data. With SIMNCCL_ANY_SIZE,
// ranks that differ only in the number of elements mix the data here as well.
void RunCollective(ncclComm* comm, const Call& call, const char* send, char* receive);

struct Message {
  bool sends;
  char* data;
  size_t size;
  int peer;
  size_t done = 0;
  bool ended = false;
};

// NCCL User Guide, "Point-to-point communication": the messages of one group run at the same time; those with the same
// peer in the order of the calls.
void RunMessages(ncclComm* comm, std::vector<Message> messages);

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_NCCL_COLLECTIVES_H_
