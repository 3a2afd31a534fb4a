#ifndef DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
#define DDPRUN_LAUNCHER_STORE_REGISTRATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/socket_address.h"
#include "launcher/io/file_descriptor.h"

// How a launcher registers its node with the store of another node's launcher: the message, and the client that sends
// it.
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
  std::vector<uint32_t> pids;          // local rank -> pid, in the worker's pid namespace; 0 = not known
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

// Registers a node with the store hosted by another node's launcher, and retries until it succeeds: the store does not
// serve the node's workers before. Never blocks; not thread-safe. For an event loop that watches PollFd().
//
//   kConnecting --connected, sent--> kAwaitingReply --reply--> kRegistered --the store is gone--> kLost
//        ^  \------------------------------\----> kBackingOff: status()
//        \--------- after a while -----------------/
//
// The connection stays open until destruction, for SendEvidence.
class RegistrationClient {
 public:
  enum class State { kConnecting, kAwaitingReply, kRegistered, kBackingOff, kLost };

  // Starts to connect. `address` is numeric.
  //   kInvalidArgument    `address` is not numeric
  //   kResourceExhausted  no descriptor is left
  static absl::StatusOr<std::unique_ptr<RegistrationClient>> Start(absl::string_view address, int port,
                                                                   const NodeRegistration& node);

  // Readable whenever OnReady() has something to do.
  int PollFd() const { return epoll_.get(); }
  State OnReady();

  // Sends evidence (proto/hang.proto) to that launcher. Dropped if this node is not registered, if it is larger than
  // RequestLimits::evidence_bytes, or if the previous evidence has not been sent yet: another one follows.
  void SendEvidence(absl::string_view payload);

  State state() const { return state_; }
  // Error of the last attempt, without the address; OK if it has not failed.
  const absl::Status& status() const { return status_; }

 private:
  RegistrationClient(UniqueFd epoll, UniqueFd timer, const SocketAddress& address, std::string registration)
      : epoll_(std::move(epoll)), timer_(std::move(timer)), address_(address), registration_(std::move(registration)) {}

  void Connect();
  void GoOn();
  void SendUnsent();
  void ReadReply();
  // Ends this attempt, and sets the timer for the next one.
  void Fail(int error_number, absl::string_view what);

  const UniqueFd epoll_;
  const UniqueFd timer_;
  const SocketAddress address_;
  const std::string registration_;
  UniqueFd socket_;
  std::string request_;  // being sent
  size_t sent_ = 0;      // bytes of request_
  State state_ = State::kConnecting;
  absl::Status status_;
  absl::Duration wait_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REGISTRATION_H_
