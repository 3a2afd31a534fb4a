#include "worker_runtime/process_group/nccl_store.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// sizeof(ncclUniqueId). LibTorch's other values, such as signals to its debugging tools, are shorter.
constexpr size_t kIdBytes = 128;

// LibTorch gives a large communicator several ids, which all ranks then read with one multiGet.
constexpr char kOneOfSeveralIds[] = "UniqueNCCLID:";

// The keys of a communicator of two ranks, for send and recv, are as in "0:1"; those of all ranks are numbers.
int RanksOf(const std::string& key, int size) { return absl::StrContains(key, ':') ? 2 : size; }

}  // namespace

void NcclStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  PrefixStore::set(key, value);
  if (value.size() == kIdBytes && !absl::StartsWith(key, kOneOfSeveralIds)) Meet(key, RanksOf(key, size_));
}

std::vector<uint8_t> NcclStore::get(const std::string& key) {
  std::vector<uint8_t> value = InterruptibleStore::get(key);
  if (value.size() == kIdBytes) Meet(key, RanksOf(key, size_));
  return value;
}

std::vector<std::vector<uint8_t>> NcclStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values = InterruptibleStore::multiGet(keys);
  if (!keys.empty() && absl::StartsWith(keys[0], kOneOfSeveralIds)) Meet(keys[0], size_);
  return values;
}

void NcclStore::Meet(const std::string& key, int ranks) {
  const std::string all = absl::StrCat(key, "/all");
  if (add(absl::StrCat(key, "/ranks"), 1) == ranks) PrefixStore::set(all, std::vector<uint8_t>{1});
  wait({all}, getTimeout());
}

}  // namespace ddprun
