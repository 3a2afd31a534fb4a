#ifndef DDPRUN_TESTS_LAUNCHER_STORE_REQUEST_BYTES_H_
#define DDPRUN_TESTS_LAUNCHER_STORE_REQUEST_BYTES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {

// Builders of the store's requests and reply values in wire format. Pure.

inline std::string Text(absl::string_view bytes) {
  std::string out;
  AppendString(bytes, &out);
  return out;
}

template <typename Integer>
std::string Number(Integer number) {
  std::string out;
  AppendInteger(number, &out);
  return out;
}

inline std::string Op(Opcode opcode) { return Number(static_cast<uint8_t>(opcode)); }

inline std::string Keys(const std::vector<std::string>& keys) {
  std::string out = Number<uint64_t>(keys.size());
  for (const std::string& key : keys) out += Text(key);
  return out;
}

inline std::string Validate() { return Op(Opcode::kValidate) + Number(kValidateMagic); }
inline std::string Ping(uint32_t nonce) { return Op(Opcode::kPing) + Number(nonce); }
inline std::string Set(absl::string_view key, absl::string_view value) {
  return Op(Opcode::kSet) + Text(key) + Text(value);
}
inline std::string Append(absl::string_view key, absl::string_view value) {
  return Op(Opcode::kAppend) + Text(key) + Text(value);
}
inline std::string CompareSet(absl::string_view key, absl::string_view expected, absl::string_view desired) {
  return Op(Opcode::kCompareSet) + Text(key) + Text(expected) + Text(desired);
}
inline std::string Get(absl::string_view key) { return Op(Opcode::kGet) + Text(key); }
inline std::string Add(absl::string_view key, int64_t delta) { return Op(Opcode::kAdd) + Text(key) + Number(delta); }
inline std::string Barrier(absl::string_view key, int64_t world) {
  return Op(Opcode::kBarrier) + Text(key) + Number(world);
}
inline std::string Check(const std::vector<std::string>& keys) { return Op(Opcode::kCheck) + Keys(keys); }
inline std::string Wait(const std::vector<std::string>& keys) { return Op(Opcode::kWait) + Keys(keys); }
inline std::string MultiGet(const std::vector<std::string>& keys) { return Op(Opcode::kMultiGet) + Keys(keys); }
inline std::string MultiSet(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = Op(Opcode::kMultiSet) + Number<uint64_t>(items.size());
  for (const auto& [key, value] : items) out += Text(key) + Text(value);
  return out;
}
inline std::string DeleteKey(absl::string_view key) { return Op(Opcode::kDeleteKey) + Text(key); }
inline std::string QueuePush(absl::string_view key, absl::string_view value) {
  return Op(Opcode::kQueuePush) + Text(key) + Text(value);
}
inline std::string QueuePop(absl::string_view key) { return Op(Opcode::kQueuePop) + Text(key); }
inline std::string QueueLength(absl::string_view key) { return Op(Opcode::kQueueLength) + Text(key); }
inline std::string NumKeys() { return Op(Opcode::kNumKeys); }
inline std::string ListKeys() { return Op(Opcode::kListKeys); }
inline std::string CancelWait() { return Op(Opcode::kCancelWait); }

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_STORE_REQUEST_BYTES_H_
