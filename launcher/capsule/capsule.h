#ifndef DDPRUN_LAUNCHER_CAPSULE_CAPSULE_H_
#define DDPRUN_LAUNCHER_CAPSULE_CAPSULE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/report/mask_secrets.h"
#include "launcher/workers/worker_set.h"
#include "proto/capsule.pb.h"
#include "proto/hang.pb.h"
#include "rendezvous/core/messages.h"

// PURE: the content of a capsule, the folder with everything known about one failure of a job (docs/capsules.md).
// Launchers of several nodes that share --log-dir write into the same folder:
//
//   LOG_DIR/capsules/JOB-round-3-0a1b2c3d/node-0.txtpb   a message of proto/capsule.proto per node, by group rank
//                                        rank-5.stderr   last output of each rank; rank-5.stdout
//                                        rank-5.stack    what it did when the launchers looked for a hang
//
// RoundRecord collects what one launcher sees of a round, and the functions give names and sizes. capsule_folder.h
// writes and reads the files, explain.h is `ddprun explain`.
namespace ddprun::launcher {

inline constexpr char kCapsules[] = "capsules";  // folder in LOG_DIR
inline constexpr char kNodeFileEnd[] = ".txtpb";
// Limits on all capsules of a log folder, of which the oldest are removed first.
inline constexpr size_t kMaxCapsules = 10;
inline constexpr size_t kMaxCapsuleBytes = size_t{50} << 20;
inline constexpr size_t kMaskedBytes = size_t{16} << 10;  // read of a worker's output

// Name of the folder of a failure: the same on all nodes of a round, another one for each round and each start of the
// job. `assignment`: that of the round; nullptr: none has started. `launcher_id` distinguishes single launchers.
std::string CapsuleName(absl::string_view job, const rendezvous::Assignment* assignment, absl::string_view launcher_id);

// "node-0.txtpb".
std::string NodeFileName(int32_t group_rank);

// Bytes that one of `nodes` nodes may write into a capsule.
size_t ShareOfNode(int nodes);

// Shortens the texts of the record until it takes, in protobuf's text format, about `bytes`, the least important first.
void Shorten(size_t bytes, capsule::v1::Node* node);

// A capsule in the log folder, for the choice of those that are removed.
struct StoredCapsule {
  std::string name;
  absl::Time changed;
  size_t bytes = 0;
};
// Returns the names of the capsules that exceed the limits, oldest first; never `current`.
std::vector<std::string> CapsulesToRemove(std::vector<StoredCapsule> stored, absl::string_view current);

// Variables of the environment that matter for distributed training (MASTER_ADDR, NCCL_*), sorted.
std::vector<std::string> RelevantEnvironment(std::vector<std::string> environment);

// Returns the last lines of a worker's output, at most `limit` bytes, without secrets. `output` is its end and has, if
// the output was longer, at least kMaskedBytes: a mask needs whole lines and keys.
std::string LastOutput(absl::string_view output, size_t limit, const SecretMask& mask);

// Text of rank-N.stack: state, stacks and collectives of the rank. Empty if nothing is known.
std::string StackText(const hang::v1::Rank& rank, absl::string_view host);

// Collects what one launcher sees of a round. Thread-compatible value type; without a round, only events are recorded.
class RoundRecord {
 public:
  explicit RoundRecord(int32_t slots) : slots_(slots) {}

  // Forgets the previous round, except for its last events. May be called again for the same round.
  void BeginRound(const rendezvous::Assignment& assignment, absl::Time now);
  void OnEvent(absl::string_view text, absl::Time now);
  // `stopped`: the launcher had stopped the round before.
  void OnEnded(const std::vector<WorkerEnd>& ends, bool stopped, absl::Time now);
  // The launcher reports this failure to the server.
  void OnReported(const rendezvous::WorkerFailure& failure);
  // The server ends the round.
  void OnStopRound(const rendezvous::StopRound& stop);
  // The node's part in the round has ended. `hang`: report of one that is not over, which is a failure; may be empty.
  void OnRoundEnd(absl::string_view hang, absl::Time now);
  // The launcher exits with this failure; its verdict is empty if the server sent none.
  void OnJobEnd(const hosts::v1::JobFailure& failure, absl::Time now);

  // True if the record has a failure that was not taken yet.
  bool has_news() const { return news_; }
  // Returns what is known. More may follow, after which the record is to be taken and written again.
  capsule::v1::Node Take();

 private:
  bool has_round() const { return node_.has_assignment(); }

  const int32_t slots_;
  capsule::v1::Node node_;
  std::map<int32_t, capsule::v1::RankEnd> ends_;  // key: local rank
  std::deque<capsule::v1::Event> events_;
  bool news_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CAPSULE_CAPSULE_H_
