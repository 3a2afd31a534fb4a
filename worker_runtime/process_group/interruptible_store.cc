#include "worker_runtime/process_group/interruptible_store.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

namespace {

// sizeof(ncclUniqueId). LibTorch's other values, such as signals to its debugging tools, are shorter.
constexpr size_t kIdBytes = 128;

// LibTorch gives a large communicator several ids, which all ranks then read with one multiGet. nccl2 does so with the
// only one, too.
bool IsReadByMultiGet(const std::string& key) {
  return absl::StartsWith(key, "UniqueNCCLID:") || absl::StrContains(key, "nccl_storekey_");
}

// The keys of a communicator of two ranks, for send and recv, are as in "0:1"; those of all ranks are numbers.
int RanksOf(const std::string& key, int size) { return absl::StrContains(key, ':') ? 2 : size; }

}  // namespace

void NcclStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  PrefixStore::set(key, value);
  if (value.size() == kIdBytes && !IsReadByMultiGet(key)) Meet(key, RanksOf(key, size_));
}

std::vector<uint8_t> NcclStore::get(const std::string& key) {
  std::vector<uint8_t> value = InterruptibleStore::get(key);
  if (value.size() == kIdBytes) Meet(key, RanksOf(key, size_));
  return value;
}

std::vector<std::vector<uint8_t>> NcclStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values = InterruptibleStore::multiGet(keys);
  if (!keys.empty() && IsReadByMultiGet(keys[0])) Meet(keys[0], size_);
  return values;
}

void NcclStore::Meet(const std::string& key, int ranks) {
  const std::string all = absl::StrCat(key, "/all");
  if (add(absl::StrCat(key, "/ranks"), 1) == ranks) PrefixStore::set(all, std::vector<uint8_t>{1});
  wait({all}, getTimeout());
}

}  // namespace ddprun
