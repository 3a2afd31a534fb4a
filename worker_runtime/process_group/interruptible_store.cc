#include "worker_runtime/process_group/interruptible_store.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/status/status.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {

std::vector<uint8_t> InterruptibleStore::get(const std::string& key) {
  wait({key}, getTimeout());
  return c10d::PrefixStore::get(key);
}

std::vector<std::vector<uint8_t>> InterruptibleStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
  return c10d::PrefixStore::multiGet(keys);
}

void InterruptibleStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void InterruptibleStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  if (!stop_.stop_possible()) return c10d::PrefixStore::wait(keys, timeout);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    TORCH_CHECK_WITH(DistStoreError, !stop_.stop_requested(), "the wait was cancelled");
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const std::chrono::milliseconds slice = std::clamp(left, std::chrono::milliseconds(1), kSlice);
    const absl::Status waited = TorchTry("", [&] {
      c10d::PrefixStore::wait(keys, slice);
      return absl::OkStatus();
    });
    if (waited.ok()) return;
    if (!absl::IsDeadlineExceeded(waited) || left <= slice) ThrowIfError(waited);
  }
}

}  // namespace ddprun
