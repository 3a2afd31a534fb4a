#include "launcher/store/registration.h"

#include <cstring>

#include "launcher/store/reply.h"
#include "launcher/store/request.h"

namespace ddprun::launcher {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kMaxHostBytes = 255;

// Takes values from the front of a text; once something is missing, everything is.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer Take() {
    Integer number = 0;
    const absl::string_view bytes = TakeBytes(sizeof number);
    if (ok_) std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }
  absl::string_view TakeBytes(uint64_t size) {
    ok_ = ok_ && size <= bytes_.size();
    if (!ok_) return {};
    const absl::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }

 private:
  absl::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

std::string EncodeRegistration(const NodeRegistration& node) {
  std::string payload;
  AppendInteger<uint32_t>(kVersion, &payload);
  AppendInteger<uint64_t>(node.round, &payload);
  AppendInteger<int32_t>(node.group_rank, &payload);
  AppendInteger<int32_t>(node.base_rank, &payload);
  AppendString(absl::string_view(node.host).substr(0, kMaxHostBytes), &payload);
  AppendInteger<uint64_t>(node.pids.size(), &payload);
  for (uint32_t pid : node.pids) AppendInteger<uint32_t>(pid, &payload);
  return payload;
}

absl::StatusOr<NodeRegistration> DecodeRegistration(absl::string_view payload) {
  Reader reader(payload);
  if (reader.Take<uint32_t>() != kVersion) {
    return absl::InvalidArgumentError("a registration of another version; use the same ddprun on all nodes");
  }
  NodeRegistration node;
  node.round = reader.Take<uint64_t>();
  node.group_rank = reader.Take<int32_t>();
  node.base_rank = reader.Take<int32_t>();
  const auto host_size = reader.Take<uint64_t>();
  if (host_size > kMaxHostBytes) return absl::InvalidArgumentError("a registration with a too long host name");
  node.host = std::string(reader.TakeBytes(host_size));
  const auto count = reader.Take<uint64_t>();
  const bool in_range = node.group_rank >= 0 && node.group_rank < kMaxRanks && node.base_rank >= 0 &&
                        count <= kMaxRanks && node.base_rank <= kMaxRanks - static_cast<int64_t>(count);
  if (!reader.ok() || !in_range || reader.left() != count * sizeof(uint32_t)) {
    return absl::InvalidArgumentError("a registration that is malformed");
  }
  node.pids.reserve(count);
  for (uint64_t i = 0; i < count; ++i) node.pids.push_back(reader.Take<uint32_t>());
  return node;
}

std::string RegistrationBytes(const NodeRegistration& node) {
  std::string bytes;
  AppendInteger(static_cast<uint8_t>(Opcode::kValidate), &bytes);
  AppendInteger<uint32_t>(kValidateMagic, &bytes);
  AppendInteger(static_cast<uint8_t>(Opcode::kRegisterNode), &bytes);
  AppendString(EncodeRegistration(node), &bytes);
  return bytes;
}

}  // namespace ddprun::launcher
