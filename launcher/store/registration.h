#ifndef DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
#define DDPRUN_LAUNCHER_STORE_REGISTRATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Maximum number of ranks of a round.
inline constexpr int kMaxRanks = 1 << 20;
// Maximum number of workers of a node (docs/protocol.md, 2.2).
inline constexpr int kMaxWorkersOfNode = 4096;
inline constexpr int kMaxAddressesOfNode = 64;
// Longer messages are rejected.
inline constexpr size_t kMaxRegistrationBytes = 64 * 1024;

// Registration of a node with the round's store, sent by its launcher once the workers have been started: which clients
// may connect, and which worker has which rank. (A TCPStore client sends its pid, never its rank.)
struct NodeRegistration {
  uint64_t round = 0;
  int32_t base_rank = 0;               // global rank of local rank 0
  std::string host;                    // for messages; one clean line of at most 255 bytes
  std::vector<uint32_t> pids;          // by local rank, as the worker itself sees its pid; 0 = not known
  std::vector<std::string> addresses;  // numeric, without a zone: other addresses that its workers may connect from
  std::string secret;                  // the store's secret, which the rendezvous server sent to the round's nodes

  bool operator==(const NodeRegistration&) const = default;
};

// Pure functions.
// Payload of Opcode::kRegisterNode: proto/registration.proto.
std::string EncodeRegistration(const NodeRegistration& node);
// kInvalidArgument: malformed, or a field is out of bounds.
absl::StatusOr<NodeRegistration> DecodeRegistration(absl::string_view payload);
// Everything that a connection sends to register: VALIDATE and the request. The reply is kRegistered (one byte).
std::string RegistrationBytes(const NodeRegistration& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
