#ifndef DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
#define DDPRUN_LAUNCHER_STORE_REGISTRATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// No round has more ranks than this.
inline constexpr int kMaxRanks = 1 << 20;

// What a launcher tells the round's store about its workers, so that the store can say by name who has not
// come. A TCPStore client sends its pid, never its rank; only the launcher knows which rank a pid has.
// Sent once the workers have been started; sent again after a change, the last one counts.
struct NodeRegistration {
  uint64_t round = 0;
  int32_t group_rank = 0;
  int32_t base_rank = 0;       // global rank of local rank 0
  std::string host;            // for messages; at most 255 bytes
  std::vector<uint32_t> pids;  // by local rank, as the worker itself sees its pid; 0 = not known

  bool operator==(const NodeRegistration&) const = default;
};

// Pure functions.
//
// The payload of Opcode::kRegisterNode, little-endian as everything in this protocol:
//   u32 version (1)   u64 round   i32 group_rank   i32 base_rank   u64 length, host   u64 count, count x u32 pid
std::string EncodeRegistration(const NodeRegistration& node);
// kInvalidArgument: cut off, of another version, or numbers out of range.
absl::StatusOr<NodeRegistration> DecodeRegistration(absl::string_view payload);
// All that a connection has to send to register: VALIDATE and the request. Answered with kRegistered (one byte).
std::string RegistrationBytes(const NodeRegistration& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
