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

// A folder of checkpoints. One process writes; any number may read, here or on other hosts. Thread-compatible.
//
// A checkpoint is the model's file and, named in its metadata, the state's file (optimizer, random numbers). The state
// is written first; the rename of the model's file makes the checkpoint. So whatever stops a save, all earlier
// checkpoints are as they were: they are removed, by Save, only when the new one is on the disk.
class CheckpointFolder {
 public:
  // `files` outlives the object. Nothing is touched.
  explicit CheckpointFolder(std::string folder, FileSystem& files = FileSystem::Real());

  const std::string& folder() const { return folder_; }

  // Makes the folder if it is not there.
  absl::Status Make();

  // Writes a checkpoint, then removes old ones (StepsToRemove) and what dead savers left. A checkpoint of the same step
  // is replaced. When this returns OK, the checkpoint is on the disk.
  // Errors: those of FileSystem, with the step; all earlier checkpoints are as before, and nothing is left over.
  absl::Status Save(int64_t step, CheckpointPart model, std::optional<CheckpointPart> state, int keep);

  struct Search {
    std::optional<StoredCheckpoint> newest;  // nullopt: there is no usable checkpoint
    std::vector<std::string> skipped;        // newer ones that are damaged: one line each, with file and reason
  };
  // The checkpoint of the largest step of which every byte is as it was written. All of it is read.
  // Errors: the folder can't be read. A folder that is not there has no checkpoints.
  absl::StatusOr<Search> FindNewest() const;

  // Opens the checkpoint of this step and checks headers and sizes, not what lies inside the tensors.
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
