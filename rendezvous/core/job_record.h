#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// What has to outlive a server: a server that is started again goes on with a job from here (protocol 4.4). Plain
// values. Without times but one for people: no steady clock outlives a machine, and what a server that has just begun
// must wait for it waits for in full (protocol 4.5).
namespace ddprun::rendezvous {

// The latest round of a job, as its nodes were told.
struct RoundRecord {
  uint64_t number = 0;  // 0: none yet
  int32_t group_world_size = 0;
  int32_t world_size = 0;
  std::string master_addr;
  int32_t master_port = 0;
  std::string master_host;
  std::string store_secret;
  std::string reason;                        // why it began
  std::string leave_reason;                  // why its nodes have to stop their workers; empty: they need not
  std::optional<WorkerFailure> leave_cause;  // of that

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// The last stream of a node that is gone, but may have workers.
struct FencedNodeRecord {
  std::string node_id;
  uint64_t incarnation = 0;

  friend bool operator==(const FencedNodeRecord&, const FencedNodeRecord&) = default;
};

struct JobRecord {
  std::string job_id;
  JobSettings settings;
  std::string settings_host;  // whose settings they are
  absl::Duration age;         // since its first node joined
  int32_t restarts_charged = 0;
  uint64_t highest_round = 0;  // given out or reported; at least round.number
  RoundRecord round;

  // Of an ended job.
  std::optional<Verdict> verdict;
  std::vector<std::string> told;         // ids of the nodes that were told, sorted; empty: the verdict binds nobody
  std::vector<FencedNodeRecord> fenced;  // sorted by node id

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// All that a server leaves behind.
struct SavedState {
  std::vector<JobRecord> jobs;   // ended ones in the order in which they ended
  uint64_t forgotten_round = 0;  // the highest of all jobs that are forgotten
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
