#ifndef DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/base/timer.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/join_first.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// What a Reconnector tells its shell to do. Streams are numbered from 1; `target` is the shell's name of one address.
namespace reconnect {
// Find the addresses of the server's name; OnResolved answers.
struct Resolve {};
// Open a stream; OnOpen or OnEnd answers, the latter with StreamProgress::kTimedOut after the timeout.
struct Connect {
  uint64_t stream;
  std::string target;
  absl::Duration timeout;
};
// Try to connect once more, by the kernel's means alone, and tell what it says; OnProbed answers.
struct Probe {
  uint64_t probe;
  std::string target;
  absl::Duration timeout;
};
// Send what is queued, then end the stream.
struct Close {
  uint64_t stream;
};
// End the stream at once.
struct Abandon {
  uint64_t stream;
};
// Give the event to the client's handler.
struct Tell {
  ClientEvent event;
};
}  // namespace reconnect

using ReconnectEffect = std::variant<reconnect::Resolve, reconnect::Connect, reconnect::Probe, reconnect::Close,
                                     reconnect::Abandon, reconnect::Tell>;

// PURE: how a Client finds its server, and finds it again: addresses in turn, waits between tries, streams that fell
// silent, and what proves that the server is gone. Its shell (grpc_client.h) has the connections.
//
//   kResolving ---> kConnecting ---> kOpen          every state -> kOver: Close, or the server refused
//       ^            |  ^   ^           |
//       |            v  |   +-----------+ (a stream broke that worked)
//       |          kProbing             |
//       |  (retry)   |                  |
//       +----- kPausing <---------------+ (Reset)
//
// A server that is gone is told from a network that is cut by what the kernel says of a connection that is begun after
// the stream was lost: ECONNREFUSED, at the address where the server was (protocol 4.5). So when a try to connect there
// fails at once, a probe follows it.
//
// Thread-compatible. Every method may be called in every state; effects are appended.
class Reconnector {
 public:
  using Effects = std::vector<ReconnectEffect>;

  struct Settings {
    std::string host;         // the server's name, for messages
    std::string address;      // the same with its port
    absl::Duration patience;  // the least that a try lasts, see NewGrpcClient
    uint32_t seed = 0;        // of the random parts of waits
  };

  // The most that a try lasts.
  static constexpr absl::Duration kConnectTimeout = Backoff::kLongestTry;

  explicit Reconnector(Settings settings) : settings_(std::move(settings)), backoff_(settings_.seed) {}

  // The first call.
  void Start(Effects* effects) { Begin(effects); }

  void OnResolved(absl::StatusOr<std::vector<std::string>> targets, SteadyTime now, Effects* effects);
  // A rendezvous server answers on the stream.
  void OnOpen(uint64_t stream, Effects* effects);
  void OnMessage(uint64_t stream, ServerMessage message, Effects* effects);
  // Comes once for each Connect.
  void OnEnd(uint64_t stream, StreamProgress progress, const absl::Status& status, SteadyTime now, Effects* effects);
  // `refused`: when the connection was begun of which the kernel said that nobody listens; unset: it said something else.
  void OnProbed(uint64_t probe, std::optional<SteadyTime> refused, SteadyTime now, Effects* effects);
  void OnDeadline(SteadyTime now, Effects* effects);
  SteadyTime NextDeadline() const { return retry_.at(); }

  // The stream on which the message is to be sent; none: it is to be dropped, see Client::Send.
  std::optional<uint64_t> Admit(const LauncherMessage& message);
  // See Client::Reset. What follows from it comes with OnDeadline, which is due at once.
  void Reset(SteadyTime now);
  // No events follow. `at_once`: what is queued is not sent.
  void Close(bool at_once, Effects* effects);

  bool over() const { return state_ == State::kOver; }

 private:
  enum class State { kResolving, kPausing, kConnecting, kProbing, kOpen, kOver };

  void Begin(Effects* effects);
  void TryAddresses(SteadyTime now, Effects* effects);
  void TryNextAddress(SteadyTime now, Effects* effects);
  void AddressFailed(SteadyTime now, Effects* effects);
  void RetryAfter(Disconnected end, SteadyTime now, Effects* effects);
  void EndSilentStreams(Effects* effects);
  void NoteLoss(SteadyTime now);
  absl::Duration Timeout(SteadyTime now) const;
  const std::string& target() const { return targets_[next_target_ - 1]; }

  const Settings settings_;
  State state_ = State::kResolving;
  Backoff backoff_;
  JoinFirst join_first_;
  Timer retry_;
  bool was_reset_ = false;
  bool no_answer_ = false;  // a try of this round over the addresses was given up
  std::vector<std::string> targets_;
  size_t next_target_ = 0;
  std::string tried_;                  // each of targets_ that failed since the first, and why
  uint64_t streams_ = 0;               // there have been so many
  uint64_t stream_ = 0;                // the present one; 0: none
  std::vector<uint64_t> silent_;       // given up, but not ended
  uint64_t probe_ = 0;                 // the newest
  bool works_ = false;                 // the server has spoken on the present stream
  std::optional<SteadyTime> lost_at_;  // when the last stream that worked was
  std::string good_target_;            // where it led to
  std::optional<SteadyTime> refused_;  // by good_target_, in this round over the addresses
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
