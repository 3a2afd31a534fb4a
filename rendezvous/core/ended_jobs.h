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
#include "rendezvous/core/fence.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// The server's memory of a job that has ended, which it keeps to send the verdict to launchers that come back for it,
// and to begin the next job of the same id safely (protocol 5).
struct EndedJob {
  v1::Job view;                       // displayed data, including the verdict; without nodes
  uint64_t last_round = 0;            // highest round that was assigned or reported
  bool told = true;                   // false: no launcher received the verdict, so its nodes may resume the job
  std::vector<std::string> node_ids;  // sorted ids of the nodes that received the verdict, or will if they join again
  FencedNodes gone;                   // nodes that may still have workers
  // True if only the nodes in `gone` and, with `unreported`, the unreported ones can still have workers; false if nodes
  // that this server does not know can, too.
  bool gone_are_all = false;
  // True if an earlier server assigned the last round, and some of its nodes have not joined since this server started,
  // or the record does not list its nodes.
  bool unreported = false;
  // Nodes of the last round that have not received the verdict, and until when each may still join for it.
  std::map<std::string, SteadyTime> unheard;

  // Rebuilds an ended job from the record of an earlier server. `began`: when this server began. `start`: wall time at
  // SteadyTime's start.
  static EndedJob FromRecord(const JobRecord& record, SteadyTime began, absl::Time start);

  // True if the Join is from a node of this job, which must receive the verdict.
  bool Concerns(const Join& join) const;
  bool Has(absl::string_view node_id) const;
  // Adds nodes to node_ids that were not connected when the job ended.
  void AddAbsent(const google::protobuf::RepeatedPtrField<KickedNodeRecord>& kicked,
                 const google::protobuf::RepeatedPtrField<std::string>& lost);
  // False if the Join's node id belongs to another launcher process: its session secret differs (protocol 2.4).
  bool IsTrueNode(const Join& join) const;
};

// The jobs that ended last: at most kMaxJobs, with at most kMaxNodes nodes in total. Thread-compatible.
class EndedJobs {
 public:
  static constexpr size_t kMaxJobs = 1000;
  static constexpr size_t kMaxNodes = 200'000;

  // Reports the highest round of jobs of earlier servers that are not added here.
  void Forgotten(uint64_t round) { forgotten_round_ = std::max(forgotten_round_, round); }

  // Adds a job, and forgets the oldest jobs if there are too many. REQUIRES: Find(the job's id) == nullptr.
  void Add(EndedJob job);
  void Remove(absl::string_view job_id);

  // Reports the end of a stream of a node of that job, if the job is remembered.
  void OnStreamClosed(absl::string_view job_id, absl::string_view node_id, uint64_t incarnation);

  // Reports a heartbeat of a node that is still stopping its workers. Returns true if the node belonged to the job, so
  // that the heartbeat must be answered.
  bool OnHeartbeat(absl::string_view job_id, const std::string& node_id, uint64_t incarnation, SteadyTime now);

  // Reports that the launcher of this Join is sent the verdict. REQUIRES: the job is remembered, and Concerns(join).
  void OnTold(const Join& join, SteadyTime now);

  // Returns until when launchers may still join for a verdict that they have not received (EndedJob::unheard).
  SteadyTime UnheardUntil() const;

  // Returns the job, or nullptr if it is not remembered.
  const EndedJob* Find(absl::string_view job_id) const;

  // Returns the round above which rounds of a new job of this id must be. One maximum is kept for all forgotten jobs,
  // so that the rounds of a job id never decrease.
  uint64_t RoundFloor(absl::string_view job_id) const;

  // Returns the first job whose id is greater than `after`, or nullptr.
  const EndedJob* Next(absl::string_view after) const;

 private:
  struct Entry {
    EndedJob job;
    std::list<std::string>::iterator place;  // position in order_
  };

  absl::btree_map<std::string, Entry> jobs_;
  std::list<std::string> order_;  // job ids, oldest end first
  size_t nodes_ = 0;
  uint64_t forgotten_round_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ENDED_JOBS_H_
