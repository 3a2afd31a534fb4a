#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_STORE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_STORE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/process_group/interruptible_store.h"

namespace ddprun {

// The store that an NCCL backend of `size` ranks uses. To create a communicator, LibTorch publishes its id in the store
// and then calls NCCL, which waits for the other ranks; an abort can't end that wait (NCCLComm holds the lock that its
// abort needs). Here the calls that publish and read the id return only when all ranks of the communicator have made
// them: ranks wait for each other in the store, where a stop ends the wait, and create the communicator together.
//
// Errors: the exceptions of InterruptibleStore. Threads: same rules as the underlying store.
class NcclStore : public InterruptibleStore {
 public:
  NcclStore(const std::string& prefix, c10::intrusive_ptr<c10d::Store> store, std::stop_token stop, int size)
      : InterruptibleStore(prefix, std::move(store), std::move(stop)), size_(size) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;

 private:
  // Waits until `ranks` ranks have called this with `key`.
  void Meet(const std::string& key, int ranks);

  const int size_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_STORE_H_
