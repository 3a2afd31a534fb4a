#include "worker_runtime/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/checkpoint/atomic_file.h"
#include "worker_runtime/checkpoint/checkpoint_names.h"
#include "worker_runtime/checkpoint/checksum.h"

namespace ddprun {
namespace {

// Name of the state's file, in the model's metadata.
constexpr char kStateKey[] = "ddprun.state_file";

// Largest first.
std::vector<int64_t> StepsAmong(const std::vector<std::string>& names) {
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const std::optional<int64_t> step = StepOfModelFile(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

absl::Status CheckAll(const StoredCheckpoint& checkpoint) {
  if (checkpoint.state != nullptr) {
    if (absl::Status status = checkpoint.state->CheckAll(); !status.ok()) return status;
  }
  return checkpoint.model->CheckAll();
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, FileSystem& files)
    : folder_(folder.empty() ? "." : std::move(folder)), files_(files) {}

std::string CheckpointFolder::Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

absl::Status CheckpointFolder::Make() { return MakeFolder(folder_); }

absl::Status CheckpointFolder::Save(int64_t step, CheckpointPart model, std::optional<CheckpointPart> state, int keep) {
  RemoveLeftOvers(folder_, files_);
  if (absl::Status status = Write(step, std::move(model), state); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("checkpoint of step ", step,
                                                    " was not saved, earlier ones are intact: ", status.message()));
  }
  Prune(step, keep);
  return absl::OkStatus();
}

absl::Status CheckpointFolder::Write(int64_t step, CheckpointPart model, const std::optional<CheckpointPart>& state) {
  std::string state_path;
  if (state) {
    const SealedHeader sealed = SealBytes(state->layout, state->bytes);
    const std::string name = StateFileName(step, sealed.checksum);
    state_path = Path(name);
    if (absl::Status status = WriteSealed(state_path, sealed, state->bytes, files_); !status.ok()) return status;
    model.layout.metadata[kStateKey] = name;
  }
  const absl::StatusOr<uint64_t> written =
      WriteSafetensors(Path(ModelFileName(step)), model.layout, model.bytes, files_);
  if (written.ok()) return absl::OkStatus();
  // An incomplete checkpoint is unusable, unless an earlier checkpoint of this step has the same state.
  const absl::StatusOr<StoredCheckpoint> earlier = Open(step);
  if (state && (!earlier.ok() || earlier->state == nullptr || earlier->state->path() != state_path)) {
    files_.Remove(state_path).IgnoreError();
  }
  return written.status();
}

void CheckpointFolder::Prune(int64_t saved, int keep) {
  absl::StatusOr<std::vector<std::string>> names = ListFolder(folder_);
  if (!names.ok()) return;
  std::vector<KnownCheckpoint> known;
  std::set<std::string> used;
  for (const int64_t step : StepsAmong(*names)) known.push_back({step, Open(step).ok()});
  const std::vector<int64_t> remove = StepsToRemove(known, saved, keep);
  for (const KnownCheckpoint& checkpoint : known) {
    if (std::find(remove.begin(), remove.end(), checkpoint.step) != remove.end()) {
      // What can't be removed now is tried again at the next save.
      files_.Remove(Path(ModelFileName(checkpoint.step))).IgnoreError();
    } else if (const absl::StatusOr<StoredCheckpoint> kept = Open(checkpoint.step);
               kept.ok() && kept->state != nullptr) {
      used.insert(kept->state->path());
    }
  }
  for (const std::string& name : *names) {
    if (IsStateFile(name) && used.count(Path(name)) == 0) files_.Remove(Path(name)).IgnoreError();
  }
}

absl::StatusOr<StoredCheckpoint> CheckpointFolder::Open(int64_t step) const {
  StoredCheckpoint checkpoint;
  checkpoint.step = step;
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> model = SafetensorsFile::Open(Path(ModelFileName(step)));
  if (!model.ok()) return model.status();
  checkpoint.model = *std::move(model);
  const auto& metadata = checkpoint.model->header().metadata;
  const auto name = metadata.find(kStateKey);
  if (name == metadata.end()) return checkpoint;

  const std::string& model_path = checkpoint.model->path();
  // Not a way to other folders.
  if (!IsStateFile(name->second)) {
    return absl::DataLossError(absl::StrCat(model_path, " is damaged: the name of its state file is invalid"));
  }
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> state = SafetensorsFile::Open(Path(name->second));
  if (!state.ok()) {
    return absl::DataLossError(absl::StrCat(model_path, " has no usable state: ", state.status().message()));
  }
  checkpoint.state = *std::move(state);
  const std::optional<Seal>& seal = checkpoint.state->seal();
  if (!seal || !absl::StrContains(name->second, ChecksumText(seal->header_checksum))) {
    return absl::DataLossError(absl::StrCat(checkpoint.state->path(), " is not the state file of ", model_path));
  }
  return checkpoint;
}

absl::StatusOr<CheckpointFolder::Search> CheckpointFolder::FindNewest() const {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder_);
  if (absl::IsNotFound(names.status())) return Search();
  if (!names.ok()) return names.status();
  Search search;
  for (const int64_t step : StepsAmong(*names)) {
    absl::StatusOr<StoredCheckpoint> checkpoint = Open(step);
    const absl::Status status = checkpoint.ok() ? CheckAll(*checkpoint) : checkpoint.status();
    if (status.ok()) {
      search.newest = *std::move(checkpoint);
      break;
    }
    search.skipped.emplace_back(status.message());
  }
  return search;
}

}  // namespace ddprun
