#ifndef DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_
#define DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/core/effect.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_view.h"
#include "rendezvous/core/lateness.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// All jobs of one server (docs/protocol.md). Pure: no clock, thread, socket, log or random call; the same calls give
// the same effects. Thread-compatible. `now` must never go back from one call to the next. Effects are appended, to
// be carried out in order. Each call costs O(log n), but those that speak to every node of a job.
class Registry {
 public:
  static constexpr size_t kMaxLiveJobs = 100'000;
  static constexpr size_t kMaxJobsPerPeer = 10'000;  // that launchers of one address began
  static constexpr size_t kMaxDrainedHosts = 100'000;
  static constexpr size_t kMaxNodesPerPeer = 2 * kMaxNodes;  // of all these jobs

  // `began`: when this server began to listen, or somewhat before. Nodes may be on their way to it that belong to a
  // job of a server before it.
  // With `keeps_records` all that has to outlive this server is in Persist effects, for Restore of the next one.
  // `max_reported`: the highest round that a node may report of a job that this server knows nothing of (limits.h).
  explicit Registry(SteadyTime began, bool keeps_records = false, uint64_t max_reported = uint64_t{1} << 48);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Restores the state of an earlier server. REQUIRES: keeps_records; nothing has happened yet.
  void Restore(SavedState saved);

  // When what comes next happens, for the events of it.
  void SetWallTime(absl::Time now) { wall_time_ = now; }

  // The node says something. A Join may name any job (creating it, or beginning it anew after an end); other
  // messages are ignored unless (job_id, node_id, incarnation) is a joined node, or one of an ended job that still
  // beats while it stops its workers. REQUIRES: a Join carries the same three names.
  void OnMessage(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                 const LauncherMessage& message, SteadyTime now, Effects* effects);

  // The node's stream of this incarnation has ended; but not because the registry closed it.
  void OnStreamClosed(const std::string& job_id, const std::string& node_id, uint64_t incarnation, SteadyTime now,
                      Effects* effects);

  // Executes a command of `caller`. A command that fails changes nothing:
  //   PERMISSION_DENIED    the caller is no admin, and does not own the job.
  //   NOT_FOUND            no such job, node or drained host.
  //   INVALID_ARGUMENT     a value out of bounds, or a name that several nodes have.
  //   FAILED_PRECONDITION  the job has ended.
  //   UNAVAILABLE          not at this moment; the text says what to wait for.
  absl::Status OnCommand(const Command& command, const Caller& caller, SteadyTime now, Effects* effects);

  // Does what is due at `now`; to be called at NextDeadline().
  void OnDeadline(SteadyTime now, Effects* effects);

  // When OnDeadline is next needed, possibly already past; InfiniteFuture if only messages can change anything.
  SteadyTime NextDeadline() const;

  // Jobs by job id, without their nodes: at most `limit` of those whose id is greater than `after`.
  std::vector<JobView> ListJobs(SteadyTime now, absl::string_view after = "",
                                size_t limit = std::numeric_limits<size_t>::max()) const;

  // One job with its nodes in the order in which they joined (an ended job has none left); nullopt: no such job.
  std::optional<JobView> GetJob(absl::string_view job_id, SteadyTime now) const;

  // The time from which no launcher can still come for the verdict of its job: a server that ends by itself stays until
  // then.
  SteadyTime UnheardUntil() const { return ended_.UnheardUntil(); }

  // By name.
  const DrainedHosts& drained_hosts() const { return drained_; }

  size_t live_jobs() const { return live_.size(); }
  const Lateness& lateness() const { return lateness_; }

 private:
  struct LiveJob {
    std::unique_ptr<Job> job;
    std::string peer;                                      // the address of its first launcher; empty: not known
    size_t nodes = 0;                                      // counted for the peer
    SteadyTime indexed_at = SteadyTime::InfiniteFuture();  // where deadlines_ has it; infinite: not there
  };
  using Live = absl::btree_map<std::string, LiveJob>;

  // The jobs that launchers of one address began, and their nodes.
  struct OfPeer {
    size_t jobs = 0;
    size_t nodes = 0;
  };

  void OnJoin(const Join& join, SteadyTime now, Effects* effects);
  absl::Status Drain(const std::string& host, const std::string& actor, SteadyTime now, Effects* effects);
  absl::Status Undrain(const std::string& host, const std::string& actor, SteadyTime now, Effects* effects);
  // The host was drained, or was not: for the record, for those that watch, and for its jobs.
  void ReportDrained(Event::Kind kind, const std::string& host, const std::string& actor, SteadyTime now,
                     Effects* effects);
  // The live job that a command is for.
  absl::StatusOr<Live::iterator> FindLive(const std::string& job_id);
  // Hints at a mistyped job id where a job that has just been created and another one wait for nodes.
  void CompareWithOthers(Live::iterator created, SteadyTime now, Effects* effects);
  // Why the server has no room for the node, or for the job that it would begin.
  std::optional<std::string> NoRoomFor(const Join& join) const;
  // After every event of a job: completes its record, and moves it to the ended ones, or its place in the order of
  // deadlines.
  void Settle(Live::iterator it, SteadyTime now);
  JobServer OwnServer() { return {began_, keeps_records_, &lateness_, &drained_}; }
  Job::Turn MakeTurn(SteadyTime now, Effects* effects) const { return {now, effects, wall_time_}; }

  const SteadyTime began_;
  const bool keeps_records_;
  const uint64_t max_reported_;
  absl::Duration longest_life_;  // see SavedState
  Lateness lateness_;
  absl::Time wall_time_;
  DrainedHosts drained_;
  JobHistory host_history_;
  Live live_;
  std::set<std::pair<absl::Duration, std::string>> deadlines_;  // of live jobs, since the clock's start
  absl::flat_hash_map<std::string, OfPeer> of_peer_;            // of live jobs
  EndedJobs ended_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_
