#ifndef DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/timer.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/join_first.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// One address of a server.
struct ServerAddress {
  std::string address;  // the shell's name of it
  std::string host;     // the name that it was found by, for which the server's certificate must be

  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

// How a stream ended.
struct StreamEnd {
  StreamProgress progress;
  absl::Status status;
  FollowerAnswer follower = {};  // of kFollower
};

// What a Reconnector tells its shell to do. Streams are numbered from 1; `target` is the shell's name of one address.
namespace reconnect {
// Find the addresses of the servers' names, and of `leader` (HOST:PORT) if that is none of them and not empty;
// OnResolved answers.
struct Resolve {
  std::string leader;
};
// Open a stream; OnOpen or OnEnd answers, the latter with StreamProgress::kTimedOut after the timeout.
struct Connect {
  uint64_t stream;
  std::string target;
  std::string host;
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

// PURE: how a Client finds its server, and finds it again: rounds of tries at all addresses at once, waits between
// them, streams that fell silent, and what proves that the server is gone. Its shell (grpc_client.h) has the
// connections.
//
//   kResolving ---> kConnecting ---> kOpen          every state -> kOver: Close, or the server refused
//       ^            |      ^           |
//       |  (retry)   |      +-----------+ (a stream broke that worked)
//       +----- kPausing <---------------+ (Reset)
//
// The first address at which a server answers that serves launchers is taken, and the other tries are given up. Of
// several servers only the leader does; a follower says who that is, and if it is none of the known ones, it is tried
// at once.
//
// A server that is gone is told from a network that is cut by what the kernel says of a connection that is begun after
// the stream was lost: ECONNREFUSED, at the address where the server was (protocol 4.5). So when a try to connect there
// fails at once, a probe follows it. Of several servers another one may lead meanwhile: then it takes a follower
// besides, which says, when asked after that, that no server has led since the one that is gone (protocol 4.8).
//
// Thread-compatible. Every method may be called in every state; effects are appended.
class Reconnector {
 public:
  using Effects = std::vector<ReconnectEffect>;

  struct Settings {
    std::string host;         // the server's name, or the servers', for messages
    std::string address;      // the same with ports
    absl::Duration patience;  // the least that a try lasts, see NewGrpcClient
    uint32_t seed = 0;        // of the random parts of waits
    bool several = false;     // there are several servers
  };

  // The most that a try lasts.
  static constexpr absl::Duration kConnectTimeout = Backoff::kLongestTry;

  explicit Reconnector(Settings settings) : settings_(std::move(settings)), backoff_(settings_.seed) {}

  // The first call.
  void Start(Effects* effects) { Begin(effects); }

  void OnResolved(absl::StatusOr<std::vector<ServerAddress>> targets, SteadyTime now, Effects* effects);
  // A rendezvous server that serves launchers answers on the stream. `epoch`: if it is the leader of several, else 0.
  void OnOpen(uint64_t stream, int64_t epoch, Effects* effects);
  void OnMessage(uint64_t stream, ServerMessage message, Effects* effects);
  // Comes once for each Connect.
  void OnEnd(uint64_t stream, const StreamEnd& end, SteadyTime now, Effects* effects);
  // `refused`: when the connection was begun of which the kernel said that nobody listens; unset: it said something
  // else.
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
  enum class State { kResolving, kPausing, kConnecting, kOpen, kOver };

  // A try that has neither led to a server nor failed.
  struct Try {
    std::string target;
    SteadyTime began;
    bool gone_known;  // gone_, when it began
  };

  void Begin(Effects* effects);
  void TryAddresses(SteadyTime now, Effects* effects);
  void TryEnded(const Try& tried, const StreamEnd& end, SteadyTime now, Effects* effects);
  void HearFollower(const Try& tried, const FollowerAnswer& answer, SteadyTime now);
  void EndRoundIfOver(SteadyTime now, Effects* effects);
  // Those that have not answered may still do so; the others are tried again.
  void EndRound(SteadyTime now, Effects* effects);
  void GiveUpTries(Effects* effects);
  void RetryAfter(Disconnected end, SteadyTime now, Effects* effects);
  void EndSilentStreams(Effects* effects);
  void NoteLoss(SteadyTime now);
  absl::Duration Timeout(SteadyTime now) const;

  const Settings settings_;
  State state_ = State::kResolving;
  Backoff backoff_;
  JoinFirst join_first_;
  Timer retry_;  // when the pause ends, or a round in which a follower answered
  bool was_reset_ = false;
  std::vector<ServerAddress> targets_;
  std::string leader_;            // the one that a follower named last
  bool leader_is_new_ = false;    // it is to be looked up
  uint64_t streams_ = 0;          // there have been so many
  uint64_t stream_ = 0;           // the one that is open; 0: none
  std::string open_target_;       // where it leads to
  std::vector<uint64_t> silent_;  // given up, but not ended

  std::map<uint64_t, Try> tries_;  // by stream; also those of rounds before

  // Of this round over the addresses.
  std::string tried_;       // those that failed, and why
  bool no_answer_ = false;  // one was given up
  bool follower_answered_ = false;
  std::optional<Disconnected> refusal_;  // a follower's
  bool only_refusals_ = true;            // nothing else was answered
  bool probing_ = false;                 // its answer is awaited
  std::optional<SteadyTime> refused_;    // see Disconnected

  uint64_t probe_ = 0;  // the newest
  bool probe_under_way_ = false;
  bool works_ = false;                 // the server has spoken on the present stream
  std::optional<SteadyTime> lost_at_;  // when the last stream that worked was
  // Of the server that spoke last.
  std::string good_target_;  // where it was
  int64_t epoch_ = 0;        // 0: it was the only one
  int64_t open_epoch_ = 0;   // of the stream that is open, which may not have worked yet
  bool gone_ = false;        // it does not lead any more, and nothing of it runs
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
