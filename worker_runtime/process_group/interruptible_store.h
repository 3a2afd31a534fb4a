#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_STORE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

namespace ddprun {

// A store whose waits end with a c10::DistStoreError when a stop is requested; c10d's waits, including those in its
// backends, last until their timeout. Waits consist of slices of kSlice, within which a stop is noticed; they are not
// sliced if `stop` can't be stopped. Threads: same rules as the underlying store.
class InterruptibleStore : public c10d::PrefixStore {
 public:
  static constexpr std::chrono::milliseconds kSlice = std::chrono::milliseconds(100);

  InterruptibleStore(const std::string& prefix, c10::intrusive_ptr<c10d::Store> store, std::stop_token stop)
      : c10d::PrefixStore(prefix, std::move(store)), stop_(std::move(stop)) {}

  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  const std::stop_token stop_;
};

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

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_INTERRUPTIBLE_STORE_H_
