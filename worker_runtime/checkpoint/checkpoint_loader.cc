#include "worker_runtime/checkpoint/checkpoint_loader.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/safetensors/tensor_bytes.h"

namespace ddprun {
namespace {

using nlohmann::json;

// Equal on all ranks that see the same file, different for another copy of it.
int64_t Fingerprint(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return 0;
  const std::string text =
      absl::StrCat(path, " ", found.st_ino, " ", found.st_size, " ", found.st_mtim.tv_sec, " ", found.st_mtim.tv_nsec);
  return static_cast<int64_t>(Checksum(text));
}

std::string HeaderChecksum(const SafetensorsFile& file) { return ChecksumText(Checksum(file.header_text())); }

SentTensors FromFile(const std::shared_ptr<SafetensorsFile>& file) {
  return {file->path(), file->header(), file->seal(), [file](size_t index, char* to) {
            const absl::string_view bytes = file->bytes(file->header().tensors[index]);
            if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
          }};
}

// Visits the tensors of this rank's own file, whose checksums were verified when it was opened.
absl::Status VisitFile(const SafetensorsFile& file, VisitTensor visit) {
  size_t index = 0;
  for (const SafetensorsTensor& tensor : file.header().tensors) {
    const absl::string_view bytes = file.bytes(tensor);
    DDPRUN_RETURN_IF_ERROR(CheckValues(file.path(), tensor, bytes));
    visit(index++, ReadableTensor(tensor, bytes));
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointLoader::CheckpointLoader(ProcessGroup* group, TrainingState& state, const CheckpointFolder& folder,
                                   const CheckpointLoaderOptions& options)
    : group_(group),
      state_(state),
      folder_(folder),
      options_(options),
      sent_(!options.shared_folder && SizeOf(group) > 1),
      meeting_(group, "Checkpointer::Resume") {}

absl::StatusOr<CheckpointInfo> CheckpointLoader::Load() {
  if (group_ != nullptr) DDPRUN_RETURN_IF_ERROR(meeting_.AwaitAll(group_->timeout()));
  DDPRUN_RETURN_IF_ERROR(Agree(ListCandidates()));
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<int> root, Choose());
  if (!root.has_value()) return info_;
  absl::Status status = Open(*root);
  if (status.ok()) status = Plan();
  DDPRUN_RETURN_IF_ERROR(Agree(status));
  DDPRUN_RETURN_IF_ERROR(Agree(ReadAll(*root)));
  return info_;
}

// Agrees on the ranks' statuses. First waits up to disk_timeout for all ranks.
absl::Status CheckpointLoader::Agree(const absl::Status& mine) {
  if (SizeOf(group_) == 1) return mine;
  DDPRUN_RETURN_IF_ERROR(meeting_.AwaitAll(options_.disk_timeout));
  if (mine.ok()) return OutcomeOfAll(group_, mine);
  return OutcomeOfAll(group_, absl::Status(mine.code(), absl::StrCat("rank ", RankIn(group_), ": ", mine.message())));
}

absl::Status CheckpointLoader::ListCandidates() {
  DDPRUN_ASSIGN_OR_RETURN(candidates_, folder_.List());
  if (!candidates_.empty()) highest_run_ = candidates_.front().run;
  if (options_.run_id.empty()) return absl::OkStatus();
  // Damaged checkpoints may belong to this run: they must be reported.
  std::erase_if(candidates_, [this](CheckpointId id) {
    const absl::StatusOr<StoredCheckpoint> stored = folder_.Open(id);
    return stored.ok() && stored->info.run_id != options_.run_id;
  });
  return absl::OkStatus();
}

// Collective. Gathers each rank's newest checkpoint; sets fingerprints_ and highest_run_.
absl::StatusOr<std::vector<CheckpointOffer>> CheckpointLoader::GatherOffers() {
  CheckpointOffer mine;
  int64_t fingerprint = 0;
  if (!candidates_.empty()) {
    mine = {true, candidates_.front(), {}};
    const std::string path = absl::StrCat(folder_.folder(), "/", ModelFileName(mine.id));
    fingerprint = Fingerprint(path);
    if (const absl::StatusOr<StoredCheckpoint> stored = folder_.Open(mine.id); stored.ok()) {
      mine.round = stored->info.round;
    }
  }
  if (SizeOf(group_) == 1) {
    fingerprints_ = {fingerprint};
    return std::vector<CheckpointOffer>{mine};
  }
  // Ranks may still be waiting for their disks.
  DDPRUN_RETURN_IF_ERROR(meeting_.AwaitAll(options_.disk_timeout));
  const at::Tensor numbers = at::tensor({int64_t{mine.found}, mine.id.run, mine.id.step, mine.round.round,
                                         mine.round.launcher_round, fingerprint, highest_run_},
                                        at::kLong);
  DDPRUN_ASSIGN_OR_RETURN(std::vector<at::Tensor> all, group_->AllGather(numbers.to(group_->device())));
  std::vector<CheckpointOffer> offers;
  fingerprints_.clear();
  for (const at::Tensor& one : all) {
    const at::Tensor here = one.to(c10::DeviceType::CPU);
    const int64_t* const said = here.const_data_ptr<int64_t>();
    offers.push_back({said[0] != 0, {said[1], said[2]}, {said[3], said[4]}});
    fingerprints_.push_back(said[5]);
    highest_run_ = std::max(highest_run_, said[6]);
  }
  return offers;
}

// Collective. Returns the rank that holds the newest intact checkpoint and has it open; nullopt: there is none.
absl::StatusOr<std::optional<int>> CheckpointLoader::Choose() {
  std::optional<int64_t> run;
  for (;;) {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointOffer> offers, GatherOffers());
    const std::optional<int> root = ChooseOffer(offers);
    const bool of_run = root && (!run || offers[static_cast<size_t>(*root)].id.run == *run);
    if (!of_run) break;
    chosen_ = offers[static_cast<size_t>(*root)].id;
    run = chosen_.run;
    DDPRUN_ASSIGN_OR_RETURN(const std::string damage, Verify(*root));
    if (damage.empty()) return root;
    info_.skipped.push_back(damage);
    // A rank that offered the same file need not verify it again.
    const bool same = fingerprints_[static_cast<size_t>(RankIn(group_))] == fingerprints_[static_cast<size_t>(*root)];
    if (!candidates_.empty() && candidates_.front() == chosen_ && same) candidates_.erase(candidates_.begin());
  }
  if (info_.skipped.empty()) return std::optional<int>();
  return absl::DataLossError(absl::StrCat("no usable checkpoint in ", folder_.folder(), " (",
                                          absl::StrJoin(info_.skipped, "; "), "); remove them to start from scratch"));
}

// Opens the chosen checkpoint on `root` and verifies all of it. Returns the damage found, on all ranks; empty: none.
absl::StatusOr<std::string> CheckpointLoader::Verify(int root) {
  json said = {{"damage", ""}, {"model", ""}, {"state", ""}};
  if (RankIn(group_) == root) {
    absl::StatusOr<StoredCheckpoint> stored = folder_.OpenVerified(chosen_);
    if (stored.ok()) {
      stored_ = *std::move(stored);
      said["model"] = HeaderChecksum(*stored_->model);
      if (stored_->state != nullptr) said["state"] = HeaderChecksum(*stored_->state);
    } else {
      said["damage"] = stored.status().message();
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(
      const std::string text,
      meeting_.AwaitText(root, said.dump(-1, ' ', false, json::error_handler_t::replace), options_.disk_timeout));
  said = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!said.is_object()) return absl::InternalError(absl::StrCat("rank ", root, " sent no choice of a checkpoint"));
  model_checksum_ = said.value("model", "");
  state_checksum_ = said.value("state", "");
  return said.value("damage", "");
}

// Collective if the tensors are sent between ranks.
absl::Status CheckpointLoader::Open(int root) {
  if (!sent_) return OpenShared();
  if (stored_) {
    model_ = FromFile(stored_->model);
    if (stored_->state != nullptr) rest_ = FromFile(stored_->state);
  }
  absl::Status status = SendHeader(*group_, root, stored_ ? stored_->model->header_text() : "", &model_);
  if (state_checksum_.empty()) return status;
  const absl::Status of_rest = SendHeader(*group_, root, stored_ ? stored_->state->header_text() : "", &rest_);
  return status.ok() ? of_rest : status;
}

absl::Status CheckpointLoader::OpenShared() {
  if (!stored_) {
    const absl::string_view advice = "; share the folder between all nodes, or set shared_folder to false";
    absl::StatusOr<StoredCheckpoint> here = folder_.OpenVerified(chosen_);
    if (!here.ok()) return absl::DataLossError(absl::StrCat(here.status().message(), advice));
    const std::string state = here->state != nullptr ? HeaderChecksum(*here->state) : "";
    if (HeaderChecksum(*here->model) != model_checksum_ || state != state_checksum_) {
      return absl::DataLossError(
          absl::StrCat(here->model->path(), " differs from the file that another rank reads", advice));
    }
    stored_ = *std::move(here);
  }
  model_ = FromFile(stored_->model);
  if (stored_->state != nullptr) rest_ = FromFile(stored_->state);
  return absl::OkStatus();
}

// Performs all checks before the first value is set.
absl::Status CheckpointLoader::Plan() {
  CheckpointInfo defaults = info_;
  defaults.progress.step = chosen_.step;
  defaults.path = model_.path;
  DDPRUN_ASSIGN_OR_RETURN(info_, InfoFromMetadata(model_.path, model_.header.metadata, std::move(defaults)));
  info_.run = chosen_.run;
  DDPRUN_ASSIGN_OR_RETURN(
      loader_, StateLoader::Create(state_, {model_.path, &model_.header},
                                   {rest_.path, state_checksum_.empty() ? nullptr : &rest_.header}, RankIn(group_)));
  missing_ = loader_->missing();
  if (sent_) {
    model_buffers_ = BuffersFor(*group_, model_);
    rest_buffers_ = BuffersFor(*group_, rest_);
  }
  return absl::OkStatus();
}

absl::Status CheckpointLoader::ReadAll(int root) {
  const auto take_model = [this](size_t index, const at::Tensor& value) { loader_->SetModelTensor(index, value); };
  const auto take_rest = [this](size_t index, const at::Tensor& value) { loader_->SetRestTensor(index, value); };
  absl::Status status;
  if (sent_) {
    status = VisitSent(*group_, root, model_, model_buffers_, take_model);
    const absl::Status of_rest = VisitSent(*group_, root, rest_, rest_buffers_, take_rest);
    if (status.ok()) status = of_rest;
  } else {
    status = VisitFile(*stored_->model, take_model);
    if (status.ok() && stored_->state != nullptr) status = VisitFile(*stored_->state, take_rest);
  }
  return status.ok() ? loader_->Install() : status;
}

}  // namespace ddprun
