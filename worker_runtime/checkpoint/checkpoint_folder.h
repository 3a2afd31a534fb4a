#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/checkpoint/file_system.h"
#include "worker_runtime/checkpoint/safetensors_file.h"
#include "worker_runtime/checkpoint/safetensors_header.h"

namespace ddprun {

// One file to be written.
struct CheckpointPart {
  SafetensorsHeader layout;              // from LayOutSafetensors
  std::vector<absl::string_view> bytes;  // of layout.tensors, one each
};

// The files of one checkpoint, open.
struct StoredCheckpoint {
  int64_t step = 0;
  std::shared_ptr<SafetensorsFile> model;
  std::shared_ptr<SafetensorsFile> state;  // nullptr: only a model was saved
};

// A directory of checkpoints. One process writes; any number may read, on this or other hosts. Thread-compatible.
//
// A checkpoint is a model file and a state file (optimizer, random numbers) that is named in the model's metadata. The
// state is written first; the rename of the model file completes the checkpoint. So an interrupted save never affects
// earlier checkpoints: Save removes them only when the new one is on disk.
class CheckpointFolder {
 public:
  // `files` outlives the object. Nothing is touched.
  explicit CheckpointFolder(std::string folder, FileSystem& files = FileSystem::Real());

  const std::string& folder() const { return folder_; }

  // Creates the directory if it does not exist.
  absl::Status Make();

  // Writes a checkpoint, then removes old ones (StepsToRemove) and leftover files of dead processes. Replaces a
  // checkpoint of the same step. When this returns OK, the checkpoint is on disk.
  // Errors: those of FileSystem, with the step; earlier checkpoints are not affected, and no files are left behind.
  absl::Status Save(int64_t step, CheckpointPart model, std::optional<CheckpointPart> state, int keep);

  struct Search {
    std::optional<StoredCheckpoint> newest;  // nullopt: there is no usable checkpoint
    std::vector<std::string> skipped;        // newer ones that are damaged: one line each, with file and reason
  };
  // The intact checkpoint with the largest step. Reads and verifies all of it.
  // Errors: the directory can't be read. A missing directory has no checkpoints.
  absl::StatusOr<Search> FindNewest() const;

  // Opens the checkpoint of this step and checks headers and sizes, but not the tensors' contents.
  // Errors: those of SafetensorsFile::Open for either file; DataLoss: the files do not belong together.
  absl::StatusOr<StoredCheckpoint> Open(int64_t step) const;

 private:
  absl::Status Write(int64_t step, CheckpointPart model, const std::optional<CheckpointPart>& state);
  void Prune(int64_t saved, int keep);
  std::string Path(const std::string& name) const;

  const std::string folder_;
  FileSystem& files_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_
