#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/safetensors/file_system.h"
#include "worker_runtime/safetensors/safetensors_file.h"
#include "worker_runtime/safetensors/safetensors_header.h"

namespace ddprun {

// A file to be written.
struct CheckpointPart {
  SafetensorsHeader layout;              // from LayOutSafetensors
  std::vector<absl::string_view> bytes;  // one entry per tensor of `layout`
};

// The open files of one checkpoint.
struct StoredCheckpoint {
  CheckpointInfo info;  // from the model's metadata
  std::shared_ptr<SafetensorsFile> model;
  std::shared_ptr<SafetensorsFile> state;  // nullptr: only a model was saved
};

// A directory of checkpoints. One process writes; any number may read, on this or other hosts. Thread-compatible.
//
// A checkpoint is a model file and a state file (optimizer, random numbers and so on) that is named in the model's
// metadata. The state is written first; the rename of the model file completes the checkpoint. So an interrupted save
// never affects earlier checkpoints: Save removes them only when the new one is on disk.
class CheckpointFolder {
 public:
  // `files` outlives the object. Does not access the file system.
  explicit CheckpointFolder(std::string folder, FileSystem& files = FileSystem::Real());

  const std::string& folder() const { return folder_; }

  // Creates the directory if it does not exist, as Save does.
  absl::Status Make();

  // Returns a number that is equal for all processes that see this directory. It is derived from a file in the
  // directory, which is created if missing.
  // Errors: those of FileSystem.
  absl::StatusOr<int64_t> Identify();

  // Writes a checkpoint, then removes old ones of its run (StepsToRemove) and incomplete files. Replaces a checkpoint
  // of the same step. When this returns OK, the checkpoint is on disk. Files of other runs are not touched.
  // Errors: FailedPrecondition: a later round has saved, so this process was replaced and must end; those of
  // FileSystem. All name the step; earlier checkpoints are not affected, and no files are left behind.
  absl::Status Save(CheckpointId id, CheckpointRound round, CheckpointPart model, CheckpointPart state, int keep);

  // Lists all checkpoints by their file names, newest first, intact or not. A missing directory has none.
  // Errors: the directory can't be read.
  absl::StatusOr<std::vector<CheckpointId>> List() const;

  // Opens a checkpoint and checks headers and sizes, but not the tensors' contents.
  // Errors: those of SafetensorsFile::Open for either file; DataLoss: the files do not belong together.
  absl::StatusOr<StoredCheckpoint> Open(CheckpointId id) const;

  // Opens a checkpoint and verifies all of its contents.
  absl::StatusOr<StoredCheckpoint> OpenVerified(CheckpointId id) const;

 private:
  absl::Status Write(CheckpointId id, CheckpointRound round, CheckpointPart model, CheckpointPart state);
  absl::Status CheckNotReplaced(int64_t run, CheckpointRound round);
  void RemoveUnfinished();
  void Prune(CheckpointId saved, int keep);
  std::string Path(const std::string& name) const;

  const std::string folder_;
  FileSystem& files_;
  std::map<CheckpointId, FileIdentity> known_not_later_;  // models that CheckNotReplaced need not read again
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_
