#ifndef DDPRUN_RENDEZVOUS_CORE_MESSAGES_H_
#define DDPRUN_RENDEZVOUS_CORE_MESSAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/equal.h"
#include "proto/rendezvous.pb.h"
#include "proto/time.h"

// Short names, default values and constructors of the messages between launchers and the rendezvous server.
// proto/rendezvous.proto documents the fields, docs/protocol.md the rules.
namespace ddprun::rendezvous {

// Protocol version of this build (protocol 7.1).
inline constexpr uint32_t kProtocolVersion = 1;

using v1::Assign;
using v1::Assignment;
using v1::ExcludedFromRound;
using v1::Finish;
using v1::GroupSucceeded;
using v1::Hang;
using v1::Heartbeat;
using v1::HeartbeatAck;
using v1::Inspect;
using v1::Inspection;
using v1::JobSettings;
using v1::Join;
using v1::Leave;
using v1::Progress;
using v1::RankProgress;
using v1::RankStacks;
using v1::Ready;
using v1::Rejected;
using v1::StopRound;
using v1::Survivor;
using v1::Verdict;
using v1::Waiting;
using v1::Welcome;
using v1::WorkerFailed;
using v1::WorkerFailure;

// Returns the settings of a job whose launchers have no options.
inline JobSettings DefaultSettings() {
  JobSettings settings;
  settings.set_min_nodes(1);
  settings.set_max_nodes(1);
  *settings.mutable_join_timeout() = FromDuration(absl::Minutes(10));
  *settings.mutable_last_call() = FromDuration(absl::Seconds(30));
  *settings.mutable_heartbeat_timeout() = FromDuration(absl::Seconds(3));
  *settings.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(80));
  *settings.mutable_restart_window() = FromDuration(absl::ZeroDuration());
  *settings.mutable_restart_backoff() = FromDuration(absl::ZeroDuration());
  settings.set_max_failures_at_step(3);
  *settings.mutable_node_cooldown() = FromDuration(absl::Minutes(1));
  return settings;
}

// Returns a restartable failure that no worker caused (rank -1), e.g. for a lost node, with the epoch as its time.
inline WorkerFailure NewFailure() {
  WorkerFailure failure;
  failure.set_rank(-1);
  failure.set_local_rank(-1);
  failure.set_restartable(true);
  *failure.mutable_at() = FromTime(absl::UnixEpoch());
  *failure.mutable_ran_for() = FromDuration(absl::ZeroDuration());
  return failure;
}

// Returns the worker's exit status as a shell reports it: its exit code, or 128 + signal; 1 if the worker is alive.
inline int32_t ExitStatus(const WorkerFailure& failure) {
  if (failure.signal() != 0) return 128 + failure.signal();
  return failure.exit_code() != 0 ? failure.exit_code() : 1;
}

inline Verdict NewVerdict(bool succeeded, std::string reason, const std::optional<WorkerFailure>& first_cause,
                          int32_t exit_code) {
  Verdict verdict;
  verdict.set_succeeded(succeeded);
  verdict.set_reason(std::move(reason));
  if (first_cause.has_value()) *verdict.mutable_first_cause() = *first_cause;
  verdict.set_exit_code(exit_code);
  return verdict;
}

inline Survivor NewSurvivor(int32_t local_rank, std::optional<int64_t> committed_step = std::nullopt) {
  Survivor survivor;
  survivor.set_local_rank(local_rank);
  if (committed_step.has_value()) survivor.set_committed_step(*committed_step);
  return survivor;
}

// Returns the first cause of a Verdict or StopRound; nullopt if the message has none.
template <typename Message>
std::optional<WorkerFailure> FirstCause(const Message& message) {
  if (!message.has_first_cause()) return std::nullopt;
  return message.first_cause();
}

inline constexpr int kMaxTracebackBytes = 16 * 1024;

// ---- launcher -> server ----

// Returns a Join with a launcher's default values.
inline Join NewJoin() {
  Join join;
  join.set_incarnation(1);
  join.set_slots(1);
  join.set_role("default");
  *join.mutable_settings() = DefaultSettings();
  join.set_phase(Join::PHASE_IDLE);
  join.set_protocol_version(kProtocolVersion);
  *join.mutable_heartbeat_timeout() = FromDuration(absl::ZeroDuration());
  return join;
}

inline WorkerFailed NewWorkerFailed(uint64_t round, WorkerFailure failure) {
  WorkerFailed failed;
  failed.set_round(round);
  *failed.mutable_failure() = std::move(failure);
  return failed;
}

inline GroupSucceeded NewGroupSucceeded(uint64_t round) {
  GroupSucceeded succeeded;
  succeeded.set_round(round);
  return succeeded;
}

template <typename Survivors = std::vector<Survivor>>
Ready NewReady(uint64_t left_round, int32_t store_port, std::string store_secret = "", const Survivors& survivors = {},
               bool can_reform = false, bool left_out = false) {
  Ready ready;
  ready.set_left_round(left_round);
  ready.set_store_port(store_port);
  ready.set_store_secret(std::move(store_secret));
  ready.mutable_survivors()->Assign(survivors.begin(), survivors.end());
  ready.set_can_reform(can_reform);
  ready.set_left_out(left_out);
  return ready;
}

inline Leave NewLeave(std::string reason, bool has_workers = false, int32_t signal = 0) {
  Leave leave;
  leave.set_reason(std::move(reason));
  leave.set_has_workers(has_workers);
  leave.set_signal(signal);
  return leave;
}

inline constexpr size_t kMaxPhaseBytes = 64;
inline constexpr int kMaxRanksInProgress = 256;                        // further ranks follow in the next Progress
inline constexpr absl::Duration kProgressInterval = absl::Seconds(1);  // shortest time between two Progress messages

inline constexpr int kMaxHangBytes = 16 * 1024;
inline constexpr int kMaxRanksInHang = 256;
inline constexpr absl::Duration kHangInterval = absl::Seconds(1);  // shortest time between two reports that count

// Only the first kMaxRanksInHang ranks are named.
inline Hang NewHang(Hang::Kind kind, uint64_t round, std::string text, absl::Span<const int32_t> ranks = {}) {
  Hang hang;
  hang.set_kind(kind);
  hang.set_round(round);
  hang.set_text(std::move(text));
  ranks = ranks.subspan(0, kMaxRanksInHang);
  hang.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  return hang;
}

// Returns the line that names who waits for whom.
inline std::string FirstLine(const Hang& hang) { return hang.text().substr(0, hang.text().find('\n')); }

inline constexpr size_t kMaxStackBytes = 48 * 1024;        // Python stacks of one rank
inline constexpr size_t kMaxNativeStackBytes = 16 * 1024;  // native stacks of one rank
inline constexpr int kMaxRanksInInspection = 256;

inline Inspection NewInspection(uint64_t id, uint64_t round, bool last) {
  Inspection inspection;
  inspection.set_id(id);
  inspection.set_round(round);
  inspection.set_last(last);
  return inspection;
}

using LauncherMessage =
    std::variant<Join, Heartbeat, WorkerFailed, GroupSucceeded, Ready, Leave, Progress, Hang, Inspection>;

// ---- server -> launcher ----

// An infinite heartbeat_interval means that the launcher sends no heartbeats.
inline Welcome NewWelcome(absl::Duration heartbeat_interval, absl::Duration heartbeat_timeout) {
  Welcome welcome;
  *welcome.mutable_heartbeat_interval() = FromDuration(heartbeat_interval);
  *welcome.mutable_heartbeat_timeout() = FromDuration(heartbeat_timeout);
  welcome.set_protocol_version(kProtocolVersion);
  return welcome;
}

inline constexpr int kMaxHostsNamed = 16;
// Waiting.hosts names all hosts of a job with at most kMaxHostsTold nodes, and kMaxHostsNamed hosts of a larger job.
inline constexpr int kMaxHostsTold = 256;

inline Assign NewAssign(Assignment assignment) {
  Assign assign;
  *assign.mutable_assignment() = std::move(assignment);
  return assign;
}

inline StopRound NewStopRound(uint64_t round, std::string reason,
                              const std::optional<WorkerFailure>& first_cause = std::nullopt, bool keep_workers = false,
                              bool at_step_end = false) {
  StopRound stop;
  stop.set_round(round);
  stop.set_reason(std::move(reason));
  if (first_cause.has_value()) *stop.mutable_first_cause() = *first_cause;
  stop.set_keep_workers(keep_workers);
  stop.set_at_step_end(at_step_end);
  return stop;
}

inline ExcludedFromRound NewExcludedFromRound(uint64_t round, std::string reason) {
  ExcludedFromRound excluded;
  excluded.set_round(round);
  excluded.set_reason(std::move(reason));
  return excluded;
}

inline Finish NewFinish(Verdict verdict) {
  Finish finish;
  *finish.mutable_verdict() = std::move(verdict);
  return finish;
}

inline Rejected NewRejected(std::string reason) {
  Rejected rejected;
  rejected.set_reason(std::move(reason));
  return rejected;
}

using ServerMessage =
    std::variant<Welcome, HeartbeatAck, Waiting, Assign, StopRound, Finish, Rejected, ExcludedFromRound, Hang, Inspect>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MESSAGES_H_
