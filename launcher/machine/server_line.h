#ifndef DDPRUN_LAUNCHER_MACHINE_SERVER_LINE_H_
#define DDPRUN_LAUNCHER_MACHINE_SERVER_LINE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/timer.h"
#include "launcher/machine/lease.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: what a launcher knows of its stream to the rendezvous server: whether it stands, when to send a heartbeat,
// since when the server is silent, how long to look for it, and for how long the workers may run without it (lease.h,
// protocol 4.5). It sends nothing itself: the caller does what the answers say.
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
    absl::Duration heartbeat_timeout;  // of the job
    absl::Duration join_timeout;       // how long to look for a server that was never reached
    // And for one that was lost; unset: see below.
    std::optional<absl::Duration> reconnect_timeout;
  };

  // A rendezvousd comes back when a service manager or an operator starts it again, moves it to another machine, or
  // has repaired its etcd.
  static constexpr absl::Duration kServerReturns = absl::Minutes(30);
  // A server in a launcher ends with its node, unless another launcher of that host takes it over at once.
  static constexpr absl::Duration kHostedServerReturns = absl::Seconds(30);

  ServerLine(const Settings& settings, SteadyTime now);

  // The stream is open. Returns the incarnation of the Join, which is to be sent now.
  uint64_t OnConnected(SteadyTime now);

  // The stream was ended from the server's side, or none could be opened. `refused`: see rendezvous::Disconnected.
  // Returns whether a stream was lost that had been up.
  bool OnDisconnected(const std::string& reason, std::optional<SteadyTime> refused, SteadyTime now);
  // The same for a stream that the launcher gives up itself, because the server is silent.
  bool OnReset(const std::string& reason, SteadyTime now);

  enum class Reading {
    kCounts,
    kStale,  // of a stream that was given up: drop it
    // It was on the way for so long that it may be over. A node with workers drops it and gives up the stream; one
    // without takes no Assign before the server has answered again (see Confirm).
    kTooLate,
  };
  // A message came; `is_ack`: a HeartbeatAck. To be called before the message is looked at.
  Reading OnMessage(bool is_ack, SteadyTime now);

  // The Join was accepted.
  void OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now);

  // Whether the node has workers. One without has nothing to fence: it waits longer for a server that is slow
  // (protocol 4.7).
  void SetHasWorkers(bool has_workers);

  // A heartbeat is sent now, out of turn, to learn whether the node still counts.
  void Confirm(SteadyTime now) { lease_.Asked(now); }

  // The node was given a round.
  void OnRound() { lease_.OnRound(); }
  // A round was given out without the node, or may have been.
  void OnMissedRound() { lease_.Missed(); }

  // A Leave is sent. A node that still has workers goes on with its heartbeats until they are gone (protocol 4.2).
  void OnLeave(bool has_workers, SteadyTime now);

  // The launcher is about to end: the server is neither waited for nor looked for any more, but see OnLeave.
  void OnEnding();

  // What is due; each is true once.
  bool TakeSilence(SteadyTime now) { return silent_.Take(now); }  // the stream is to be given up
  bool TakeHeartbeat(SteadyTime now);                             // one is to be sent now
  bool TakeGivingUp(SteadyTime now) { return give_up_.Take(now); }
  SteadyTime NextDeadline() const;

  State state() const { return state_; }
  bool up() const { return state_ == State::kUp; }
  bool ever_up() const { return ever_up_; }
  // How long a server that does not answer is looked for.
  absl::Duration patience() const { return ever_up_ ? reconnect_timeout_ : settings_.join_timeout; }
  // True if the last stream was given up because the server was silent: then only its answer keeps workers running.
  bool was_silent() const { return was_silent_; }
  // Of the last OnDisconnected or OnReset; empty if there was none.
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
  absl::Duration reconnect_timeout_ = kHostedServerReturns;  // of the server that welcomed this launcher last
  bool has_workers_ = false;
  SteadyTime heard_;  // when silent_ was set
  bool ending_ = false;
  bool leaving_ = false;  // the server was told so on the present stream: heartbeats go on
  absl::Duration heartbeat_interval_ = absl::InfiniteDuration();
  std::string last_error_;
  Timer heartbeat_;
  Timer silent_;
  Timer give_up_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_SERVER_LINE_H_
