#include "launcher/store/registration.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/store/reply.h"
#include "launcher/store/request.h"
#include "proto/registration.pb.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxHostBytes = 255;
constexpr size_t kMaxAddressBytes = 45;  // IPv6 with an IPv4 tail
constexpr size_t kMaxSecretBytes = 64;

absl::Status Refused(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("malformed registration: ", why));
}

}  // namespace

std::string EncodeRegistration(const NodeRegistration& node) {
  store::v1::Registration message;
  message.set_round(node.round);
  message.set_secret(node.secret);
  message.set_base_rank(node.base_rank);
  message.set_host(OneLine(node.host, kMaxHostBytes));
  for (const uint32_t pid : node.pids) message.add_pids(pid);
  for (const std::string& address : node.addresses) {
    if (message.addresses_size() < kMaxAddressesOfNode) message.add_addresses(address);
  }
  return message.SerializeAsString();
}

absl::StatusOr<NodeRegistration> DecodeRegistration(absl::string_view payload) {
  store::v1::Registration message;
  if (payload.size() > kMaxRegistrationBytes) return Refused(absl::StrCat(payload.size(), " bytes"));
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return Refused("not a Registration; run the same ddprun version on all nodes");
  }
  if (message.pids_size() == 0 || message.pids_size() > kMaxWorkersOfNode) {
    return Refused(absl::StrCat(message.pids_size(), " workers"));
  }
  if (message.base_rank() < 0 || message.base_rank() > kMaxRanks - message.pids_size()) {
    return Refused(absl::StrCat("base rank ", message.base_rank()));
  }
  if (message.addresses_size() > kMaxAddressesOfNode) {
    return Refused(absl::StrCat(message.addresses_size(), " addresses"));
  }
  if (message.secret().size() > kMaxSecretBytes) return Refused("the secret is too long");
  NodeRegistration node;
  for (std::string& address : *message.mutable_addresses()) {
    if (address.size() > kMaxAddressBytes) return Refused("an address is too long");
    node.addresses.push_back(std::move(address));
  }
  node.round = message.round();
  node.base_rank = message.base_rank();
  node.host = OneLine(message.host(), kMaxHostBytes);
  node.pids.assign(message.pids().begin(), message.pids().end());
  node.secret = std::move(*message.mutable_secret());
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
