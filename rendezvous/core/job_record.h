#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

// What has to outlive a server: a server that is started again goes on with a job from here (protocol 4.4). Plain
// values; times are relative to the moment of the record, because no clock outlives a machine.
namespace ddprun::rendezvous {

// The latest round of a job, as its nodes were told.
struct RoundRecord {
  uint64_t number = 0;  // 0: none yet
  int32_t group_world_size = 0;
  int32_t world_size = 0;
  std::string master_addr;
  int32_t master_port = 0;
  std::string master_host;
  std::string reason;                        // why it began
  std::string leave_reason;                  // why its nodes have to stop their workers; empty: they need not
  std::optional<WorkerFailure> leave_cause;  // of that

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// A node that is gone, but may have workers for so long.
struct FencedNodeRecord {
  std::string node_id;
  uint64_t incarnation = 0;
  absl::Duration remaining;

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
  std::vector<FencedNodeRecord> fenced;  // sorted by node id

  // Of an ended job.
  std::optional<Verdict> verdict;
  std::vector<std::string> told;  // ids of the nodes that were told, sorted; empty: the verdict binds nobody

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
