#ifndef DDPRUN_LAUNCHER_CAPSULE_CAPSULE_FOLDER_H_
#define DDPRUN_LAUNCHER_CAPSULE_CAPSULE_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/background_calls.h"
#include "launcher/capsule/capsule.h"
#include "launcher/config/launch_config.h"
#include "launcher/io/output_source.h"
#include "proto/capsule.pb.h"
#include "proto/hang.pb.h"

// Capsules in files: the shell of capsule.h.
namespace ddprun::launcher {

// Records the rounds of one launcher, and writes what it saw of each that fails. Does nothing without --log-dir.
// Belongs to the loop's thread; files are written by others, one write at a time.
class CapsuleWriter {
 public:
  // `may_have_secrets`: the words from which a write makes its SecretMask.
  CapsuleWriter(const LaunchConfig& config, const std::string& host, const std::string& launcher_id,
                const std::vector<std::string>& may_have_secrets);
  ~CapsuleWriter();

  RoundRecord& record() { return record_; }

  // A worker is about to be started, and its output will be found here.
  void OnOutput(int32_t local_rank, const OutputSource& out, const OutputSource& err);

  // Begins to write the record if it has a failure that was not written yet. `stacks`: evidence of this node's ranks;
  // may be empty.
  void Write(const hang::v1::NodeEvidence& stacks);

  // Waits until everything is written, up to `timeout`. Returns the last folder that was written; empty: none.
  std::string Finish(absl::Duration timeout);

 private:
  struct Shared;
  struct Task;
  struct Output {
    OutputSource out, err;
  };

  RoundRecord record_;
  std::vector<Output> outputs_;  // index: local rank
  const std::string host_, launcher_id_, job_;
  uint64_t started_ = 0;            // number of the last write
  std::shared_ptr<Shared> shared_;  // null: disabled
  BackgroundCalls calls_;
};

// Returns the capsule that `path` names: a capsule, a folder of capsules, or a log folder, of which the newest capsule
// counts. NotFound: there is none.
absl::StatusOr<std::string> FindCapsule(const std::string& path);

// Reads the files of all nodes in this folder. Files that can't be read are logged and left out.
// InvalidArgument: there is no readable one.
absl::StatusOr<std::vector<capsule::v1::Node>> ReadCapsule(const std::string& folder);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CAPSULE_CAPSULE_FOLDER_H_
