#ifndef DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
#define DDPRUN_LAUNCHER_STORE_REGISTRATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// No round has more ranks than this.
inline constexpr int kMaxRanks = 1 << 20;
// No node has more workers than this (docs/protocol.md, 2.2).
inline constexpr int kMaxWorkersOfNode = 4096;
inline constexpr int kMaxAddressesOfNode = 64;
// A longer message is no registration.
inline constexpr size_t kMaxRegistrationBytes = 64 * 1024;

// What a launcher tells the round's store about its node, once the workers have been started: who may connect, and
// which worker has which rank. (A TCPStore client sends its pid, never its rank.)
struct NodeRegistration {
  uint64_t round = 0;
  int32_t base_rank = 0;               // global rank of local rank 0
  std::string host;                    // for messages; one clean line of at most 255 bytes
  std::vector<uint32_t> pids;          // by local rank, as the worker itself sees its pid; 0 = not known
  std::vector<std::string> addresses;  // numeric, without a zone: others than its own that its workers may come from
  std::string secret;                  // of the store, as the rendezvous server told the round's nodes

  bool operator==(const NodeRegistration&) const = default;
};

// Pure functions.
//
// The payload of Opcode::kRegisterNode: proto/registration.proto.
std::string EncodeRegistration(const NodeRegistration& node);
// kInvalidArgument: malformed, or a field is out of its bounds.
absl::StatusOr<NodeRegistration> DecodeRegistration(absl::string_view payload);
// All that a connection has to send to register: VALIDATE and the request. Answered with kRegistered (one byte).
std::string RegistrationBytes(const NodeRegistration& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
