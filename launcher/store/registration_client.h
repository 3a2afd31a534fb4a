#ifndef DDPRUN_LAUNCHER_STORE_REGISTRATION_CLIENT_H_
#define DDPRUN_LAUNCHER_STORE_REGISTRATION_CLIENT_H_

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/socket_address.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/store/registration.h"

namespace ddprun::launcher {

// Registers a node with the store hosted by another node's launcher, and retries until it succeeds: the store does not
// serve the node's workers before. Never blocks; not thread-safe. For an event loop that watches PollFd().
//
//   kConnecting --connected, sent--> kAwaitingReply --reply--> kRegistered --the store is gone--> kLost
//        ^  \------------------------------\----> kBackingOff: status()
//        \--------- after a while -----------------/
//
// The connection stays open, idle, until destruction.
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

  State state() const { return state_; }
  // Error of the last attempt, without the address; OK if it has not failed.
  const absl::Status& status() const { return status_; }

 private:
  RegistrationClient(UniqueFd epoll, UniqueFd timer, const SocketAddress& address, std::string request)
      : epoll_(std::move(epoll)), timer_(std::move(timer)), address_(address), request_(std::move(request)) {}

  void Connect();
  void GoOn();
  void SendUnsent();
  void ReadReply();
  // Ends this attempt, and sets the timer for the next one.
  void Fail(int error_number, absl::string_view what);

  const UniqueFd epoll_;
  const UniqueFd timer_;
  const SocketAddress address_;
  const std::string request_;
  UniqueFd socket_;
  size_t sent_ = 0;  // bytes of request_
  State state_ = State::kConnecting;
  absl::Status status_;
  absl::Duration wait_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REGISTRATION_CLIENT_H_
