#ifndef DDPRUN_RENDEZVOUS_CORE_ENDED_JOBS_H_
#define DDPRUN_RENDEZVOUS_CORE_ENDED_JOBS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/fenced_nodes.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_view.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// The memory of a job that has ended.
struct EndedJob {
  JobView view;                       // with its verdict, without nodes
  uint64_t last_round = 0;            // the highest one given out or reported
  bool told = true;                   // false: no launcher received the verdict, so it has no effect
  std::vector<std::string> node_ids;  // sorted: who was told, and who is when it comes back
  FencedNodes gone;                   // nodes that still had workers, before or at the end
  bool gone_are_all = false;          // no other node had workers
  // But nodes of the last round that have not come to this server; true if a record does not name them.
  bool unreported = false;
  // Nodes of the last round that the verdict has not reached, and until when each may still come back for it.
  std::map<std::string, SteadyTime> unheard;

  // As a server left it that ended before `began`, when this one began.
  static EndedJob FromRecord(JobRecord record, SteadyTime began);

  // True if the Join comes from a launcher of this job, which has to receive the verdict again.
  bool Concerns(const Join& join) const;
  bool Has(absl::string_view node_id) const;
  // Nodes that were not there when the job ended.
  void AddAbsent(const std::vector<KickedNodeRecord>& kicked, const std::vector<std::string>& lost);
  // False if the node id is known to belong to another launcher process (protocol 2.4).
  bool IsTrueNode(const Join& join) const;
};

// The jobs that ended last: at most kMaxJobs of them with at most kMaxNodes nodes in all. Thread-compatible.
class EndedJobs {
 public:
  static constexpr size_t kMaxJobs = 1000;
  static constexpr size_t kMaxNodes = 200'000;

  // Rounds of jobs that a server before this one has forgotten.
  void Forgotten(uint64_t round) { forgotten_round_ = std::max(forgotten_round_, round); }

  // REQUIRES: no ended job of that id is remembered.
  void Add(EndedJob job);
  void Remove(absl::string_view job_id);

  // A stream of a node of that job, if it is remembered, has closed.
  void OnStreamClosed(absl::string_view job_id, absl::string_view node_id, uint64_t incarnation);

  // A node that left, or whose job ended, sends heartbeats while it stops its workers. True if it belonged to the job.
  bool OnHeartbeat(absl::string_view job_id, const std::string& node_id, uint64_t incarnation, SteadyTime now);

  // The verdict is sent again to the launcher of this Join. REQUIRES: the job is remembered, and Concerns(join).
  void OnTold(const Join& join, SteadyTime now);

  // The time from which no launcher can still come for the verdict of its job.
  SteadyTime UnheardUntil() const;

  // nullptr: not (or no longer) remembered.
  const EndedJob* Find(absl::string_view job_id) const;

  // New rounds of a job of this id must be greater than this. Of forgotten jobs only the highest round of all is
  // kept, so rounds of a job id grow for ever.
  uint64_t RoundFloor(absl::string_view job_id) const;

  // The first job whose id is greater than `after`, or nullptr.
  const EndedJob* Next(absl::string_view after) const;

 private:
  struct Entry {
    EndedJob job;
    std::list<std::string>::iterator place;
  };

  absl::btree_map<std::string, Entry> jobs_;
  std::list<std::string> order_;  // who ended first is at the front
  size_t nodes_ = 0;
  uint64_t forgotten_round_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ENDED_JOBS_H_
