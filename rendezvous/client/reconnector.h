#ifndef DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/client/client.h"
#include "rendezvous/core/messages.h"

// How a Client finds its server and finds it again: Reconnector decides, with Backoff for the times of its attempts and
// JoinFirst for the messages that a new stream may carry. StreamProgress and the functions after it judge how a stream
// ended, and describe it for users.
namespace ddprun::rendezvous {

// How far a stream got before it ended.
enum class StreamProgress {
  kNone,       // no response of a rendezvous server was received
  kTimedOut,   // no response was received before the timeout
  kFollower,   // a server that does not lead answered
  kOpen,       // a rendezvous server answered
  kAbandoned,  // a rendezvous server answered, and the launcher abandoned the stream
};

// Answer of one of several servers that does not lead (protocol 4.8).
struct FollowerAnswer {
  std::string leader;  // HOST:PORT; empty: no leader, or unknown
  int64_t epoch = 0;   // epoch of the latest leader at some time after the query; 0: unknown
};

// True if the server refuses this launcher (INVALID_ARGUMENT, FAILED_PRECONDITION, ABORTED, UNAUTHENTICATED,
// PERMISSION_DENIED).
bool IsRefusal(const absl::Status& status);

// True if a TLS connection attempt failed because of TLS, as far as gRPC reveals: a peer was reached but no session
// resulted.
bool IsTlsFailure(StreamProgress progress, const absl::Status& status);
// Returns "TLS handshake failed: ...", with what to check.
std::string DescribeTlsFailure(const absl::Status& status);

// Describes for the launcher the end of a stream to `address` (a name or an address); `status` comes from gRPC or the
// server. If nothing was reached, the reason names only the address and the error: "10.0.0.5: connection refused".
// Thread-safe.
Disconnected DescribeEnd(absl::string_view address, StreamProgress progress, const absl::Status& status);

// Computes the wait before each retry and the timeout of each attempt. After a stream that worked, the first retry is
// immediate, because the server soon considers the node lost; then waits grow from 10 ms, doubling to 1 s. Each is
// shortened randomly, so that a thousand launchers do not retry at once. While attempts get no answer at all, the
// server may be overloaded (protocol 4.7): then waits double to 4 s and attempts have longer timeouts, so that less of
// the server's work is wasted. Thread-compatible; `seed` makes it repeatable.
class Backoff {
 public:
  static constexpr absl::Duration kFirst = absl::Milliseconds(10);
  static constexpr absl::Duration kMost = absl::Seconds(1);
  static constexpr absl::Duration kMostWithoutAnswer = absl::Seconds(4);
  static constexpr absl::Duration kTry = absl::Seconds(5);
  static constexpr absl::Duration kLongestTry = absl::Seconds(10);

  explicit Backoff(uint32_t seed) : random_(seed) {}

  // The stream works: the next retry is immediate.
  void Reset() {
    next_ = absl::ZeroDuration();
    try_ = kTry;
  }

  // `no_answer`: the previous attempt timed out without an answer.
  absl::Duration Next(bool no_answer = false) {
    try_ = no_answer ? std::min(2 * try_, kLongestTry) : kTry;
    const absl::Duration most = no_answer ? kMostWithoutAnswer : kMost;
    const absl::Duration wait = std::min(next_, most);
    next_ = std::clamp(2 * next_, kFirst, most);
    return wait * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }

  // Timeout of the next attempt.
  absl::Duration longest_try() const { return try_; }

 private:
  absl::Duration next_ = kFirst;
  absl::Duration try_ = kTry;
  std::minstd_rand random_;
};

// Decides which messages may be sent on the current stream. A launcher may send a message before it learns that its
// stream broke and another one is open. That message was meant for the old stream, and the server refuses a stream that
// does not begin with a Join or has two. Thread-compatible.
class JoinFirst {
 public:
  void OnNewStream() { joined_ = false; }

  // True if the message may be sent: the first Join of the stream, or any other message after it.
  bool Admits(const LauncherMessage& message) {
    const bool is_join = std::holds_alternative<Join>(message);
    const bool admitted = is_join != joined_;
    joined_ = joined_ || is_join;
    return admitted;
  }

 private:
  bool joined_ = false;
};

// One address of a server.
struct ServerAddress {
  std::string address;  // "10.0.0.1:29400", "[fe80::1%eth0]:29400"
  std::string host;     // name that resolved to it, for which the server's certificate must be valid

  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

// How a stream ended.
struct StreamEnd {
  StreamProgress progress;
  absl::Status status;
  FollowerAnswer follower = {};  // if kFollower
};

// Effects that the shell of a Reconnector carries out. Streams are numbered from 1; `target` is the address of a
// ServerAddress.
namespace reconnect {
// Look up the addresses of the servers' names, and of `leader` (HOST:PORT) unless it is empty or one of them. Answered
// by OnResolved.
struct Resolve {
  std::string leader;
};
// Open a stream. Answered by OnOpen or OnEnd; after the timeout by OnEnd with StreamProgress::kTimedOut.
struct Connect {
  uint64_t stream;
  std::string target;
  std::string host;
  absl::Duration timeout;
};
// Probe the address with a plain kernel connection (IsRefused in grpc_client.h). Answered by OnProbed.
struct Probe {
  uint64_t probe;
  std::string target;
  absl::Duration timeout;
};
// Send queued messages, then end the stream.
struct Close {
  uint64_t stream;
};
// End the stream at once.
struct Abandon {
  uint64_t stream;
};
// Pass the event to the client's handler.
struct Report {
  ClientEvent event;
};
}  // namespace reconnect

using ReconnectEffect = std::variant<reconnect::Resolve, reconnect::Connect, reconnect::Probe, reconnect::Close,
                                     reconnect::Abandon, reconnect::Report>;

// PURE: connects and reconnects a Client to its server: rounds of attempts at all addresses at once, waits between
// them, silent streams, and the proof that a server is gone. Its shell (grpc_client.h) has the connections.
//
//   kResolving ---> kConnecting ---> kOpen          every state -> kOver: Close, or the server refused
//       ^            |      ^           |
//       |  (retry)   |      +-----------+ (a stream broke that worked)
//       +----- kPausing <---------------+ (Reset)
//
// The first address that answers as a server for launchers is used, and the other attempts are abandoned. Of several
// servers only the leader serves launchers. A follower names the leader; if that address is new, it is tried at once.
//
// A lost server is distinguished from a cut network by the kernel's answer to a connection that was started after the
// stream was lost: ECONNREFUSED at the server's last address (protocol 4.5). So a connection attempt that fails there
// at once is followed by a probe. With several servers, another one may have become the leader meanwhile. Then a
// follower must also confirm, in answer to a later query, that no server has led since the lost one (protocol 4.8).
//
// Thread-compatible. Every method may be called in every state; effects are appended.
class Reconnector {
 public:
  using Effects = std::vector<ReconnectEffect>;

  struct Settings {
    std::string host;         // name of the server or servers, for messages
    std::string address;      // the same with ports
    absl::Duration patience;  // minimum timeout of attempts after a loss, see NewGrpcClient
    uint32_t seed = 0;        // seed of the random parts of waits
    bool several = false;     // there are several servers
  };

  // Maximum timeout of an attempt.
  static constexpr absl::Duration kConnectTimeout = Backoff::kLongestTry;

  explicit Reconnector(Settings settings) : settings_(std::move(settings)), backoff_(settings_.seed) {}

  // The first call.
  void Start(Effects* effects) { Begin(effects); }

  void OnResolved(absl::StatusOr<std::vector<ServerAddress>> targets, SteadyTime now, Effects* effects);
  // A server that serves launchers answers on the stream. `epoch`: nonzero if it is the leader of several.
  void OnOpen(uint64_t stream, int64_t epoch, Effects* effects);
  void OnMessage(uint64_t stream, ServerMessage message, Effects* effects);
  // Called once for each Connect.
  void OnEnd(uint64_t stream, const StreamEnd& end, SteadyTime now, Effects* effects);
  // `refused`: start of the connection attempt, if it was refused because nothing listens there; else unset.
  void OnProbed(uint64_t probe, std::optional<SteadyTime> refused, SteadyTime now, Effects* effects);
  void OnDeadline(SteadyTime now, Effects* effects);
  SteadyTime NextDeadline() const { return retry_.at(); }

  // Returns the stream to send the message on, or nullopt if it must be dropped, see Client::Send.
  std::optional<uint64_t> Admit(const LauncherMessage& message);
  // See Client::Reset. The effects come with OnDeadline, which is due at once.
  void Reset(SteadyTime now);
  // No events follow. `at_once`: queued messages are not sent.
  void Close(bool at_once, Effects* effects);

  bool over() const { return state_ == State::kOver; }

 private:
  enum class State { kResolving, kPausing, kConnecting, kOpen, kOver };

  // A connection attempt that is pending.
  struct Try {
    std::string target;
    SteadyTime began;
    bool gone_known;  // gone_ at the time it began
  };

  void Begin(Effects* effects);
  void TryAddresses(SteadyTime now, Effects* effects);
  void TryEnded(const Try& tried, const StreamEnd& end, SteadyTime now, Effects* effects);
  void OnFollowerAnswer(const Try& tried, const FollowerAnswer& answer, SteadyTime now);
  void EndRoundIfOver(SteadyTime now, Effects* effects);
  // Pending attempts continue into the next round; the failed ones are retried then.
  void EndRound(SteadyTime now, Effects* effects);
  void AbandonTries(Effects* effects);
  void RetryAfter(Disconnected end, SteadyTime now, Effects* effects);
  void EndSilentStreams(Effects* effects);
  void NoteLoss(SteadyTime now);
  absl::Duration Timeout(SteadyTime now) const;

  const Settings settings_;
  State state_ = State::kResolving;
  Backoff backoff_;
  JoinFirst join_first_;
  Timer retry_;  // end of the pause, or of a round in which a follower answered
  bool was_reset_ = false;
  std::vector<ServerAddress> targets_;
  std::string leader_;            // the leader that a follower named last
  bool leader_is_new_ = false;    // it must be looked up
  uint64_t streams_ = 0;          // number of streams so far
  uint64_t stream_ = 0;           // the open stream; 0: none
  std::string open_target_;       // its address
  std::vector<uint64_t> silent_;  // abandoned, but not ended

  std::map<uint64_t, Try> tries_;  // attempts by stream, including those of earlier rounds

  // State of the current round over the addresses.
  std::string tried_;       // failed attempts and their errors
  bool no_answer_ = false;  // an attempt timed out
  bool follower_answered_ = false;
  std::optional<Disconnected> refusal_;  // a follower's
  bool only_refusals_ = true;            // there was no other answer
  bool probing_ = false;                 // a probe of this round is pending
  std::optional<SteadyTime> refused_;    // see Disconnected

  uint64_t probe_ = 0;  // the latest probe
  bool probe_under_way_ = false;
  bool works_ = false;                 // the server has sent a message on the current stream
  std::optional<SteadyTime> lost_at_;  // when the last working stream was lost
  // State of the server that sent the last message.
  std::string good_target_;  // its address
  int64_t epoch_ = 0;        // 0: it was the only server
  int64_t open_epoch_ = 0;   // epoch of the open stream, which may not have worked yet
  bool gone_ = false;        // it has stopped leading and has certainly ended
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
