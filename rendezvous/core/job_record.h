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

// A node of a round.
struct RoundNodeRecord {
  std::string node_id;
  std::string session;  // digest of its session secret (protocol 2.4); empty: it had none
  bool gone = false;    // it was lost or left since; if it may have workers still, it is among the fenced nodes

  friend bool operator==(const RoundNodeRecord&, const RoundNodeRecord&) = default;
};

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
  // By group rank. Empty: it was not given out by a server that keeps records, but taken up from what nodes reported.
  std::vector<RoundNodeRecord> nodes;

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// The last stream of a node that is gone, but may have workers.
struct FencedNodeRecord {
  std::string node_id;
  uint64_t incarnation = 0;
  std::string session;  // as RoundNodeRecord has it

  friend bool operator==(const FencedNodeRecord&, const FencedNodeRecord&) = default;
};

// What a command has put in place of the settings' bounds.
struct JobSize {
  int32_t min_nodes = 1;
  int32_t max_nodes = 1;

  friend bool operator==(const JobSize&, const JobSize&) = default;
};

// The job id of the record of what is the server's: drained_hosts. No job can have it. A server of before it takes it for
// a job that never began.
inline constexpr char kServerRecordId[] = "ddprun:server";

struct JobRecord {
  std::string job_id;
  JobSettings settings;
  std::string settings_host;  // whose settings they are
  absl::Duration age;         // since its first node joined
  int32_t restarts_charged = 0;
  uint64_t highest_round = 0;  // given out or reported; at least round.number
  RoundRecord round;
  std::optional<JobSize> resized;
  std::vector<std::string> drained_hosts;  // sorted; of the server
  std::vector<FencedNodeRecord> fenced;    // sorted by node id

  // Of an ended job.
  std::optional<Verdict> verdict;
  std::vector<std::string> told;  // ids of the nodes that were told, sorted; empty: the verdict binds nobody

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// Whether nobody but the nodes that the record names can have workers: the nodes of its round, which is the latest of
// all, and the fenced ones (protocol 4.5).
inline bool NamesAll(const RoundRecord& round, uint64_t highest_round) {
  return !round.nodes.empty() && round.number == highest_round;
}

// All that a server leaves behind.
struct SavedState {
  std::vector<JobRecord> jobs;   // ended ones in the order in which they ended
  uint64_t forgotten_round = 0;  // the highest of all jobs that are forgotten
  // The longest that one server has lived with these records. Who ran workers before the first of them, and was not
  // heard of in so long, has stopped them.
  absl::Duration longest_life;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
