#include "worker_runtime/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/safetensors/file_system.h"

namespace ddprun {
namespace {

// Metadata key, in all files, of the state file's name.
constexpr char kStateKey[] = "ddprun.state_file";
// File with a random text, which distinguishes directories of the same path on several hosts.
constexpr char kIdFile[] = ".folder_id";

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, FileSystem& files)
    : folder_(folder.empty() ? "." : std::move(folder)), files_(files) {}

std::string CheckpointFolder::Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

absl::Status CheckpointFolder::Make() { return MakeFolder(folder_); }

absl::StatusOr<int64_t> CheckpointFolder::Identify() {
  const std::string path = Path(kIdFile);
  const auto read = [&path] {
    std::string id;
    std::ifstream(path) >> id;
    return id;
  };
  std::string id = read();
  if (id.empty()) {
    // A hard link is created only if no other process was first, and has its whole content from the start.
    const std::string own = absl::StrCat(path, ".", RandomId(), ".tmp");
    DDPRUN_ASSIGN_OR_RETURN(const int fd, files_.Create(own));
    absl::Status status = files_.Write(fd, RandomId(), own);
    if (status.ok()) status = files_.Sync(fd, own);
    files_.Close(fd);
    const int failed = status.ok() && ::link(own.c_str(), path.c_str()) != 0 ? errno : 0;
    files_.Remove(own).IgnoreError();
    if (!status.ok()) return status;
    id = read();
    if (id.empty()) return absl::UnavailableError(absl::StrCat("can't create ", path, ": ", std::strerror(failed)));
  }
  return static_cast<int64_t>(Checksum(id));
}

absl::Status CheckpointFolder::Save(CheckpointId id, CheckpointRound round, CheckpointPart model, CheckpointPart state,
                                    int keep) {
  // Here, and not only at the start: this rank may have become the one that writes, or the directory was removed.
  absl::Status status = Make();
  if (status.ok()) status = CheckNotReplaced(id.run, round);
  if (status.ok()) {
    RemoveUnfinished();
    status = Write(id, round, std::move(model), std::move(state));
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("checkpoint of step ", id.step,
                                                    " was not saved, earlier ones are intact: ", status.message()));
  }
  Prune(id, keep);
  return absl::OkStatus();
}

absl::Status CheckpointFolder::CheckNotReplaced(int64_t run, CheckpointRound round) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, List());
  const std::map<CheckpointId, FileIdentity> before = std::exchange(known_not_later_, {});
  for (const CheckpointId id : ids) {
    if (id.run != run) continue;
    const absl::StatusOr<FileIdentity> identity = IdentityOf(Path(ModelFileName(id)));
    const auto known = before.find(id);
    if (!identity.ok() || known == before.end() || known->second != *identity) {
      const absl::StatusOr<StoredCheckpoint> other = Open(id);
      if (!other.ok() || !identity.ok()) continue;
      if (other->info.round > round) {
        return absl::FailedPreconditionError(absl::StrCat(
            other->model->path(), " was saved by workers that started later (round ", other->info.round.round,
            ", this is ", round.round, "): this process was replaced and must end"));
      }
    }
    known_not_later_[id] = *identity;
  }
  return absl::OkStatus();
}

absl::Status CheckpointFolder::Write(CheckpointId id, CheckpointRound round, CheckpointPart model,
                                     CheckpointPart state) {
  const std::string state_name = StateFileName(id, RandomId().substr(0, kChecksumTextBytes));
  model.layout.metadata[kStateKey] = state_name;
  state.layout.metadata[kStateKey] = state_name;
  const absl::Status of_state = WriteSafetensors(Path(state_name), state.layout, state.bytes, files_);
  if (!of_state.ok()) {
    files_.Remove(Path(state_name)).IgnoreError();
    return of_state;
  }
  bool renamed = false;
  const absl::Status status =
      WriteSafetensors(Path(ModelFileName(id)), model.layout, model.bytes, files_, [&]() -> absl::Status {
        // As late as possible: writing may have taken minutes.
        const absl::Status not_replaced = CheckNotReplaced(id.run, round);
        renamed = not_replaced.ok();
        return not_replaced;
      });
  if (status.ok()) return status;
  // Nothing refers to the state, unless the model was renamed and only the sync of the folder failed.
  const absl::StatusOr<StoredCheckpoint> there = renamed ? Open(id) : absl::NotFoundError("");
  const bool used = there.ok() && there->state != nullptr && there->state->path() == Path(state_name);
  if (!used) files_.Remove(Path(state_name)).IgnoreError();
  return status;
}

// Removes files of a writer that died. A writer that is still alive belongs to workers that were replaced; its save
// fails.
void CheckpointFolder::RemoveUnfinished() {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const bool ours = absl::StartsWith(name, ".step_") || absl::StartsWith(name, ".run_");
    if (ours && IsTemporaryName(name)) files_.Remove(Path(name)).IgnoreError();
  }
}

void CheckpointFolder::Prune(CheckpointId saved, int keep) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder_);
  const absl::StatusOr<std::vector<CheckpointId>> ids = List();
  if (!names.ok() || !ids.ok()) return;
  std::map<int64_t, std::set<std::string>> written;  // state files by step
  for (const std::string& name : *names) {
    const std::optional<CheckpointId> id = IdOfStateFile(name);
    if (id && id->run == saved.run) written[id->step].insert(Path(name));
  }
  std::vector<KnownCheckpoint> known;
  std::map<int64_t, std::string> states;  // names in use, by step
  for (const CheckpointId id : *ids) {
    if (id.run != saved.run) continue;
    // If all checkpoints are kept, a state file can only be unused if its step was saved twice.
    if (const auto& of_step = written[id.step]; keep < 1 && of_step.size() == 1) {
      known.push_back({id.step, true});
      states[id.step] = *of_step.begin();
      continue;
    }
    const absl::StatusOr<StoredCheckpoint> stored = Open(id);
    known.push_back({id.step, stored.ok()});
    if (stored.ok() && stored->state != nullptr) states[id.step] = stored->state->path();
  }
  const std::vector<int64_t> remove = StepsToRemove(known, saved.step, keep);
  std::set<std::string> used;
  for (const KnownCheckpoint& checkpoint : known) {
    if (std::find(remove.begin(), remove.end(), checkpoint.step) != remove.end()) {
      // Files that can't be removed now are retried at the next save.
      files_.Remove(Path(ModelFileName({saved.run, checkpoint.step}))).IgnoreError();
    } else if (const auto state = states.find(checkpoint.step); state != states.end()) {
      used.insert(state->second);
    }
  }
  for (const std::string& name : *names) {
    const std::optional<CheckpointId> id = IdOfStateFile(name);
    if (id && id->run == saved.run && used.count(Path(name)) == 0) files_.Remove(Path(name)).IgnoreError();
  }
}

absl::StatusOr<std::vector<CheckpointId>> CheckpointFolder::List() const {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder_);
  std::vector<CheckpointId> ids;
  if (absl::IsNotFound(names.status())) return ids;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (const std::optional<CheckpointId> id = IdOfModelFile(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end(), std::greater<>());
  return ids;
}

absl::StatusOr<StoredCheckpoint> CheckpointFolder::Open(CheckpointId id) const {
  StoredCheckpoint checkpoint;
  DDPRUN_ASSIGN_OR_RETURN(checkpoint.model, SafetensorsFile::Open(Path(ModelFileName(id))));
  const std::string& model_path = checkpoint.model->path();
  const auto& metadata = checkpoint.model->header().metadata;
  CheckpointInfo defaults;
  defaults.progress.step = id.step;
  defaults.path = model_path;
  DDPRUN_ASSIGN_OR_RETURN(checkpoint.info, InfoFromMetadata(model_path, metadata, std::move(defaults)));
  checkpoint.info.run = id.run;
  const auto name = metadata.find(kStateKey);
  if (name == metadata.end()) return checkpoint;

  // Rejects paths into other folders.
  if (!IdOfStateFile(name->second)) {
    return absl::DataLossError(absl::StrCat(model_path, " is damaged: the name of its state file is invalid"));
  }
  absl::StatusOr<std::shared_ptr<SafetensorsFile>> state = SafetensorsFile::Open(Path(name->second));
  if (!state.ok()) {
    return absl::DataLossError(absl::StrCat(model_path, " has no usable state: ", state.status().message()));
  }
  checkpoint.state = *std::move(state);
  const auto& said = checkpoint.state->header().metadata;
  const auto own_name = said.find(kStateKey);
  if (own_name == said.end() || own_name->second != name->second) {
    return absl::DataLossError(absl::StrCat(checkpoint.state->path(), " is not the state file of ", model_path));
  }
  return checkpoint;
}

absl::StatusOr<StoredCheckpoint> CheckpointFolder::OpenVerified(CheckpointId id) const {
  DDPRUN_ASSIGN_OR_RETURN(StoredCheckpoint checkpoint, Open(id));
  DDPRUN_RETURN_IF_ERROR(checkpoint.model->CheckAll());
  if (checkpoint.state != nullptr) DDPRUN_RETURN_IF_ERROR(checkpoint.state->CheckAll());
  return checkpoint;
}

}  // namespace ddprun
