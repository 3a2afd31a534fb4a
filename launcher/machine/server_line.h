#ifndef DDPRUN_LAUNCHER_MACHINE_SERVER_LINE_H_
#define DDPRUN_LAUNCHER_MACHINE_SERVER_LINE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: computes how long this node's workers may run without hearing from the server (protocol 4.5). The server starts
// no round for the other nodes until 7/6 of the heartbeat timeout H after it last heard from this node. Workers that
// are gone 11/12 H after the last moment at which the server certainly counted this node can therefore never meet
// workers of a later round.
//
// The send time of a request that the server answered is such a moment. So is the start of a connection attempt that
// was refused: then no server is running that could start a round, and a new server waits three heartbeat timeouts for
// known nodes to report. But a firewall may refuse connections as well, so a refusal counts only if the server's own
// host ended the stream; after a silence only an answer renews the lease.
//
// Thread-compatible.
class Lease {
 public:
  explicit Lease(absl::Duration heartbeat_timeout) : timeout_(heartbeat_timeout) {}

  // Sets the heartbeat timeout that the server uses from now on.
  void SetTimeout(absl::Duration heartbeat_timeout) { timeout_ = heartbeat_timeout; }
  absl::Duration timeout() const { return timeout_; }

  // A request was sent on the current stream. The server answers requests in order.
  void Asked(SteadyTime now) { asked_.push_back(now); }
  // The oldest outstanding request was answered. Ignored if there is none.
  void Answered(SteadyTime now);

  // The current stream has ended: `silent` if the launcher abandoned it because the server was silent, else closed
  // remotely.
  void StreamOver(bool silent);
  // A connection attempt to the server's address, started at `began`, was refused.
  void Refused(SteadyTime began, SteadyTime now);
  // The server runs in this process, so the lease never expires.
  void Unlimited() { since_ = SteadyTime::InfiniteFuture(); }

  // The server assigned this node to a round.
  void OnRound() { in_touch_ = true; }
  // A round started without the node, or may have.
  void Missed() { in_touch_ = false; }
  // True if the node has counted at every moment since OnRound, so that no round started without it (protocol 4.5).
  bool InTouch(SteadyTime now) const { return in_touch_ && now < StopAt(); }

  // The latest moment at which the server certainly counted this node.
  SteadyTime since() const { return since_; }
  // StopAt: workers are asked to stop. KillAt: they are killed. SilentAt: the stream of a node with workers is reset if
  // nothing was received from the server since `heard`.
  SteadyTime StopAt() const { return since_ + timeout_ * 5 / 6; }
  SteadyTime KillAt() const { return since_ + timeout_ * 11 / 12; }
  SteadyTime SilentAt(SteadyTime heard) const { return heard + timeout_ / 2; }

 private:
  absl::Duration timeout_;
  SteadyTime since_ = SteadyTime::InfinitePast();
  std::deque<SteadyTime> asked_;
  bool refusals_count_ = false;
  bool in_touch_ = false;  // true at since_
};

// PURE: state of a launcher's connection to the rendezvous server: whether a stream is open, when to send a heartbeat,
// since when the server is silent, how long to look for it, and how long the workers may run without it (Lease,
// protocol 4.5). It sends nothing; the caller acts on its results.
//
//           OnConnected            OnWelcome
//   kDown -------------> kJoining -----------> kUp
//     ^                      |                  |
//     +----------------------+------------------+   OnDisconnected, OnReset
//
// Thread-compatible. Every method may be called in every state.
class ServerLine {
 public:
  enum class State { kDown, kJoining, kUp };

  struct Settings {
    absl::Duration heartbeat_timeout;  // from the job's settings
    absl::Duration join_timeout;       // how long to look for a server that was never reached
    // How long to look for a server that was lost; unset: see below.
    std::optional<absl::Duration> reconnect_timeout;
  };

  // Default for a rendezvousd, which returns when a service manager or an operator restarts it, moves it to another
  // machine, or has repaired its etcd.
  static constexpr absl::Duration kServerReturns = absl::Minutes(30);
  // Default for a server in a launcher, which ends with its node unless another launcher on that host takes over at
  // once.
  static constexpr absl::Duration kHostedServerReturns = absl::Seconds(30);

  ServerLine(const Settings& settings, SteadyTime now);

  // The stream is open. Returns the incarnation of the Join to send now.
  uint64_t OnConnected(SteadyTime now);

  // The stream was ended by the server, or none could be opened. `refused`: see rendezvous::Disconnected. Returns true
  // if a stream was lost that had been up.
  bool OnDisconnected(const std::string& reason, std::optional<SteadyTime> refused, SteadyTime now);
  // Like OnDisconnected, for a stream that the launcher abandons because the server is silent.
  bool OnReset(const std::string& reason, SteadyTime now);

  enum class Reading {
    kCounts,
    kStale,  // from an abandoned stream: drop it
    // The message was delayed by more than the lease allows and may be outdated. A node with workers drops it and
    // abandons the stream; a node without accepts no Assign until the server has answered again (see Confirm).
    kTooLate,
  };
  // A message arrived; `is_ack`: a HeartbeatAck. Call this before the message is processed.
  Reading OnMessage(bool is_ack, SteadyTime now);

  // The Join was accepted.
  void OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now);

  // `has_workers`: true if the node has workers. A node without has nothing to fence and waits longer for a slow server
  // (protocol 4.7).
  void SetHasWorkers(bool has_workers);

  // An extra heartbeat is sent now, to learn whether the node still counts.
  void Confirm(SteadyTime now) { lease_.Asked(now); }

  // The node was assigned to a round.
  void OnRound() { lease_.OnRound(); }
  // A round started without the node, or may have.
  void OnMissedRound() { lease_.Missed(); }

  // A Leave is sent. A node that still has workers continues its heartbeats until they have ended (protocol 4.2).
  void OnLeave(bool has_workers, SteadyTime now);

  // The launcher is about to end: stop waiting and looking for the server, except as in OnLeave.
  void OnEnding();

  // Timers that are due; each returns true once.
  bool TakeSilence(SteadyTime now) { return silent_.Take(now); }  // abandon the stream
  bool TakeHeartbeat(SteadyTime now);                             // send one now
  bool TakeGivingUp(SteadyTime now) { return give_up_.Take(now); }
  SteadyTime NextDeadline() const;

  State state() const { return state_; }
  bool up() const { return state_ == State::kUp; }
  bool ever_up() const { return ever_up_; }
  // How long to look for a server that does not answer.
  absl::Duration patience() const { return ever_up_ ? reconnect_timeout_ : settings_.join_timeout; }
  // True if the last stream was abandoned because the server was silent: then only its answer keeps workers running.
  bool was_silent() const { return was_silent_; }
  // Error of the last OnDisconnected or OnReset; empty if there was none.
  const std::string& last_error() const { return last_error_; }
  const Lease& lease() const { return lease_; }

 private:
  bool Down(const std::string& reason, SteadyTime now);
  void Heard(SteadyTime now);

  const Settings settings_;
  State state_ = State::kDown;
  uint64_t incarnation_ = 0;
  Lease lease_;
  bool ever_up_ = false;
  bool was_silent_ = false;
  absl::Duration reconnect_timeout_ = kHostedServerReturns;  // depends on the server that welcomed this launcher last
  bool has_workers_ = false;
  SteadyTime heard_;  // when silent_ was set
  bool ending_ = false;
  bool leaving_ = false;  // a Leave was sent on the current stream: heartbeats continue
  absl::Duration heartbeat_interval_ = absl::InfiniteDuration();
  std::string last_error_;
  Timer heartbeat_;
  Timer silent_;
  Timer give_up_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_SERVER_LINE_H_
