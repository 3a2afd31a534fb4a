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
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/join_first.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// One address of a server.
struct ServerAddress {
  std::string address;  // the shell's name of the address
  std::string host;     // the name that resolved to it, which the server's certificate must be valid for

  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

// How a stream ended.
struct StreamEnd {
  StreamProgress progress;
  absl::Status status;
  FollowerAnswer follower = {};  // if kFollower
};

// Effects that the shell of a Reconnector carries out. Streams are numbered from 1; `target` is the shell's name of one
// address.
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
// Probe the address with a plain kernel connection (ConnectProbe). Answered by OnProbed.
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

  std::map<uint64_t, Try> tries_;  // by stream; includes those of earlier rounds

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
  int64_t open_epoch_ = 0;   // of the open stream, which may not have worked yet
  bool gone_ = false;        // it has stopped leading and has certainly ended
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RECONNECTOR_H_
