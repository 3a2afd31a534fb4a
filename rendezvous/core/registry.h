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
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// All jobs of one server: the entry of the core. The shell (server/driver.h) passes it messages, closed streams,
// commands and deadlines; it passes them on to their Job, and remembers jobs that have ended (EndedJobs). Effects are
// appended to `effects`, and must be executed in that order. Pure: no clock, thread, socket, log or random number, so
// equal calls give equal effects. `now` must never decrease from one call to the next. A call costs O(log n), or O(n)
// if it sends messages to all n nodes of a job. Thread-compatible.
class Registry {
 public:
  static constexpr size_t kMaxLiveJobs = 100'000;
  static constexpr size_t kMaxJobsPerPeer = 10'000;  // live jobs whose first launcher has the same IP address
  static constexpr size_t kMaxDrainedHosts = 100'000;
  static constexpr size_t kMaxNodesPerPeer = 2 * kMaxNodes;  // nodes in these jobs

  // `began`: when this server began to listen, or somewhat earlier: the start of the waits for nodes of earlier
  // servers. `keeps_records`: true to emit Persist effects, with everything that Restore of a later server needs.
  // `max_reported`: highest round that a node may report of an unknown job (MaxReportedRound in limits.h).
  explicit Registry(SteadyTime began, bool keeps_records = false, uint64_t max_reported = uint64_t{1} << 48);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Restores the records of earlier servers. REQUIRES: keeps_records; no other function was called before.
  void Restore(const SavedState& saved);

  // Sets the wall time at SteadyTime's start, for the displayed times of later calls.
  void SetWallTimeAtStart(absl::Time start) { start_ = start; }

  // Handles a message of a node. A Join may name any job, and creates the job if there is none. Other messages are
  // ignored unless the node has joined with this incarnation, except heartbeats of nodes that are still stopping their
  // workers after their job ended. REQUIRES: a Join has the same job id, node id and incarnation as the arguments.
  void OnMessage(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                 const LauncherMessage& message, SteadyTime now, Effects* effects);

  // Handles the end of the node's stream of this incarnation. Not to be called for streams that a Close effect ended.
  void OnStreamClosed(const std::string& job_id, const std::string& node_id, uint64_t incarnation, SteadyTime now,
                      Effects* effects);

  // Executes a command of `caller` (protocol 3.10). A command that fails changes nothing:
  //   PERMISSION_DENIED    the caller is not an admin and does not own the job.
  //   NOT_FOUND            no such job, node or drained host.
  //   INVALID_ARGUMENT     a value out of bounds, or a host name that several nodes have.
  //   FAILED_PRECONDITION  the job has ended.
  //   UNAVAILABLE          impossible at the moment; the message says what to wait for.
  absl::Status OnCommand(const Command& command, const Caller& caller, SteadyTime now, Effects* effects);

  // Sends an Inspect to the connected nodes of the job's running round that have these ranks. Returns
  // PERMISSION_DENIED, NOT_FOUND and FAILED_PRECONDITION as OnCommand does, and:
  //   INVALID_ARGUMENT     the round has no such rank.
  //   FAILED_PRECONDITION  no round of the job is running.
  absl::StatusOr<InspectedNodes> Inspect(const v1::InspectRequest& question, const Caller& caller, SteadyTime now,
                                         Effects* effects);

  // Handles all deadlines up to `now`. Call at NextDeadline().
  void OnDeadline(SteadyTime now, Effects* effects);

  // Returns when OnDeadline must be called next, which may be in the past; the infinite future if there is no deadline.
  SteadyTime NextDeadline() const;

  // Returns at most `limit` live and ended jobs, without their nodes, in order of their ids, beginning with the first
  // id greater than `after`.
  std::vector<v1::Job> ListJobs(SteadyTime now, absl::string_view after = "",
                                size_t limit = std::numeric_limits<size_t>::max()) const;

  // Returns one job with its nodes in order of their joins (an ended job has no nodes); nullopt: no such job.
  std::optional<v1::Job> GetJob(absl::string_view job_id, SteadyTime now) const;

  // Returns until when launchers may still join for a verdict that they have not received. A server that is about to
  // exit waits until then.
  SteadyTime UnheardUntil() const { return ended_.UnheardUntil(); }

  // Hosts that are drained now, sorted.
  const DrainedHosts& drained_hosts() const { return drained_; }

  size_t live_jobs() const { return live_.size(); }
  const Lateness& lateness() const { return lateness_; }

 private:
  struct LiveJob {
    std::unique_ptr<Job> job;
    std::string peer;                                      // IP address of the job's first launcher; empty: unknown
    size_t nodes = 0;                                      // nodes of this job that OfPeer::nodes includes
    SteadyTime indexed_at = SteadyTime::InfiniteFuture();  // key in deadlines_; infinite: not there
  };
  using Live = absl::btree_map<std::string, LiveJob>;

  // Number of live jobs whose first launcher has one IP address, and of the nodes of these jobs.
  struct OfPeer {
    size_t jobs = 0;
    size_t nodes = 0;
  };

  void OnJoin(const Join& join, SteadyTime now, Effects* effects);
  absl::Status Drain(const std::string& host, const std::string& actor, SteadyTime now, Effects* effects);
  absl::Status Undrain(const std::string& host, const std::string& actor, SteadyTime now, Effects* effects);
  // Persists and publishes that a host was drained or undrained, and adapts the jobs with nodes on it.
  void ReportDrained(bool drained, const std::string& host, const std::string& actor, SteadyTime now, Effects* effects);
  // Finds the job of a command. NOT_FOUND, FAILED_PRECONDITION if the job has ended, or PERMISSION_DENIED.
  absl::StatusOr<Live::iterator> FindLive(const std::string& job_id, const Caller& caller);
  // Adds a hint at a mistyped job id to a new job and to each other job that waits for nodes, if one job could have all
  // these nodes.
  void CompareWithOthers(Live::iterator created, SteadyTime now, Effects* effects);
  // Returns why a Join must be rejected because of the limits above; nullopt if it is within them.
  std::optional<std::string> NoRoomFor(const Join& join) const;
  // Updates what the registry keeps about a job: completes its record, moves it to ended_ if it has ended, and updates
  // deadlines_ and of_peer_. Call after every event of the job.
  void Settle(Live::iterator it, SteadyTime now);
  JobServer OwnServer() { return {began_, keeps_records_, &lateness_, &drained_}; }
  Job::Turn MakeTurn(SteadyTime now, Effects* effects) const { return {now, effects, start_ + now.since_start()}; }

  const SteadyTime began_;
  const bool keeps_records_;
  const uint64_t max_reported_;
  absl::Duration longest_life_;  // see SavedState::longest_life
  Lateness lateness_;
  absl::Time start_;  // wall time at SteadyTime's start
  DrainedHosts drained_;
  JobHistory host_history_;
  Live live_;
  std::set<std::pair<absl::Duration, std::string>> deadlines_;  // (deadline since the clock's start, id) of live jobs
  absl::flat_hash_map<std::string, OfPeer> of_peer_;            // counts of live jobs by IP address
  EndedJobs ended_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_
