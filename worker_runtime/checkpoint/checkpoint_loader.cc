#include "worker_runtime/checkpoint/checkpoint_loader.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_runtime/checkpoint/checkpoint_content.h"
#include "worker_runtime/checkpoint/checksum.h"
#include "worker_runtime/checkpoint/random_state.h"
#include "worker_runtime/process_group/agreement.h"

namespace ddprun {
namespace {

using nlohmann::json;

uint64_t FileBytes(const SafetensorsFile& file) { return file.header().data_begin + file.header().data_bytes(); }

SentFile Local(const SafetensorsFile& file) { return SentFile{file.path(), file.header(), file.seal(), &file}; }

}  // namespace

CheckpointLoader::CheckpointLoader(ProcessGroup* group, torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                   const CheckpointFolder& folder, bool shared_folder, absl::Duration disk_timeout)
    : group_(group),
      optimizer_(optimizer),
      folder_(folder),
      sent_(!shared_folder && SizeOf(group) > 1),
      disk_timeout_(disk_timeout),
      meeting_(group, "Checkpointer::Resume"),
      module_(GetModuleState(module)) {}

absl::StatusOr<CheckpointInfo> CheckpointLoader::Load() {
  absl::Status status = SizeOf(group_) > 1 ? meeting_.AwaitAll(group_->timeout()) : absl::OkStatus();
  if (!status.ok()) return status;
  if (RankIn(group_) == 0) status = Choose();
  if (status = SendChoice(status); !status.ok()) return status;
  info_.skipped = choice_.skipped;
  if (!choice_.found) return info_;
  status = OpenChosen();
  if (status.ok()) status = Plan();
  if (status = Agree(status); !status.ok()) return status;
  if (status = Agree(ReadAll()); !status.ok()) return status;
  return info_;
}

// However long a rank's disk takes.
absl::Status CheckpointLoader::Agree(const absl::Status& mine) {
  if (absl::Status status = meeting_.AwaitAll(disk_timeout_); !status.ok()) return status;
  if (mine.ok() || SizeOf(group_) == 1) return OutcomeOfAll(group_, mine);
  return OutcomeOfAll(group_, absl::Status(mine.code(), absl::StrCat("rank ", RankIn(group_), ": ", mine.message())));
}

// On rank 0.
absl::Status CheckpointLoader::Choose() {
  absl::StatusOr<CheckpointFolder::Search> search = folder_.FindNewest();
  if (!search.ok()) return search.status();
  choice_.skipped = std::move(search->skipped);
  stored_ = std::move(search->newest);
  if (!stored_) {
    if (choice_.skipped.empty()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("no usable checkpoint in ", folder_.folder(), " (",
                                            absl::StrJoin(choice_.skipped, "; "),
                                            "); remove them to start from scratch"));
  }
  choice_.found = true;
  choice_.step = stored_->step;
  choice_.model_path = stored_->model->path();
  choice_.model_checksum = Checksum(stored_->model->header_text());
  choice_.model_bytes = FileBytes(*stored_->model);
  if (stored_->state == nullptr) return absl::OkStatus();
  choice_.state_path = stored_->state->path();
  choice_.state_checksum = Checksum(stored_->state->header_text());
  choice_.state_bytes = FileBytes(*stored_->state);
  return absl::OkStatus();
}

absl::Status CheckpointLoader::SendChoice(const absl::Status& chosen) {
  if (SizeOf(group_) == 1) return chosen;
  const json mine = {{"found", choice_.found},
                     {"step", choice_.step},
                     {"model_path", choice_.model_path},
                     {"state_path", choice_.state_path},
                     {"model_checksum", choice_.model_checksum},
                     {"state_checksum", choice_.state_checksum},
                     {"model_bytes", choice_.model_bytes},
                     {"state_bytes", choice_.state_bytes},
                     {"skipped", choice_.skipped}};
  absl::StatusOr<std::string> text = mine.dump(-1, ' ', false, json::error_handler_t::replace);
  if (!chosen.ok()) text = chosen;
  text = meeting_.AwaitText(0, text, disk_timeout_);
  if (!text.ok()) return text.status();
  if (RankIn(group_) == 0) return absl::OkStatus();
  const json said = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!said.is_object()) return absl::InternalError("rank 0 sent no choice of a checkpoint");
  choice_.found = said.value("found", false);
  choice_.step = said.value("step", int64_t{0});
  choice_.model_path = said.value("model_path", "");
  choice_.state_path = said.value("state_path", "");
  choice_.model_checksum = said.value("model_checksum", uint64_t{0});
  choice_.state_checksum = said.value("state_checksum", uint64_t{0});
  choice_.model_bytes = said.value("model_bytes", uint64_t{0});
  choice_.state_bytes = said.value("state_bytes", uint64_t{0});
  choice_.skipped = said.value("skipped", std::vector<std::string>());
  return absl::OkStatus();
}

absl::Status CheckpointLoader::OpenChosen() {
  if (sent_) {
    const SafetensorsFile* const model = stored_ ? stored_->model.get() : nullptr;
    const SafetensorsFile* const state = stored_ ? stored_->state.get() : nullptr;
    absl::Status status = ReceiveHeader(model, choice_.model_path, choice_.model_bytes, &model_);
    if (!status.ok() || choice_.state_path.empty()) return status;
    return ReceiveHeader(state, choice_.state_path, choice_.state_bytes, &state_);
  }
  if (!stored_) {
    const absl::string_view advice = "; share the folder between all nodes, or set shared_folder to false";
    absl::StatusOr<StoredCheckpoint> here = folder_.Open(choice_.step);
    if (!here.ok()) return absl::DataLossError(absl::StrCat(here.status().message(), advice));
    const bool same_state = (here->state == nullptr) == choice_.state_path.empty() &&
                            (here->state == nullptr || Checksum(here->state->header_text()) == choice_.state_checksum);
    if (Checksum(here->model->header_text()) != choice_.model_checksum || !same_state) {
      return absl::DataLossError(absl::StrCat(here->model->path(), " differs from the file that rank 0 reads", advice));
    }
    stored_ = *std::move(here);
  }
  model_ = Local(*stored_->model);
  if (stored_->state != nullptr) state_ = Local(*stored_->state);
  return absl::OkStatus();
}

// Collective.
absl::Status CheckpointLoader::ReceiveHeader(const SafetensorsFile* file, const std::string& path, uint64_t file_bytes,
                                             SentFile* to) {
  const absl::StatusOr<std::string> text = group_->BroadcastText(file != nullptr ? file->header_text() : "", 0);
  if (!text.ok()) return text.status();
  if (file != nullptr) {
    *to = Local(*file);
    return absl::OkStatus();
  }
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(path, *text, file_bytes);
  if (!header.ok()) return header.status();
  absl::StatusOr<std::optional<Seal>> seal = ReadSeal(path, *text, *header);
  if (!seal.ok()) return seal.status();
  *to = SentFile{path, *std::move(header), *std::move(seal), nullptr};
  return absl::OkStatus();
}

// Everything that can be wrong before the first value is set.
absl::Status CheckpointLoader::Plan() {
  CheckpointInfo defaults = info_;
  defaults.progress.step = choice_.step;
  defaults.path = choice_.model_path;
  absl::StatusOr<CheckpointInfo> info = InfoFromMetadata(model_.path, model_.header.metadata, std::move(defaults));
  if (!info.ok()) return info.status();
  info_ = *std::move(info);
  absl::StatusOr<std::vector<std::vector<size_t>>> match = MatchState(model_.path, module_.Targets(), model_.header);
  if (!match.ok()) return match.status();
  match_ = *std::move(match);
  // A model that somebody else put into the folder has no state; the optimizer then begins anew.
  if (optimizer_ == nullptr || choice_.state_path.empty()) return absl::OkStatus();
  const auto groups = state_.header.metadata.find(kOptimizerGroupsKey);
  if (groups == state_.header.metadata.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(model_.path, " was saved without an optimizer; load it with LoadModule"));
  }
  absl::StatusOr<OptimizerStateLoader> loader =
      OptimizerStateLoader::Create(state_.path, module_, *optimizer_, state_.header, groups->second);
  if (!loader.ok()) return loader.status();
  optimizer_loader_ = *std::move(loader);
  return absl::OkStatus();
}

absl::Status CheckpointLoader::Read(const SentFile& from, VisitTensor visit) {
  return sent_ ? VisitSentFile(*group_, from, visit) : VisitFile(*from.file, visit);
}

absl::Status CheckpointLoader::ReadAll() {
  const at::NoGradGuard no_grad;
  absl::Status status = Read(model_, [this](size_t index, const at::Tensor& value) {
    for (const size_t target : match_[index]) at::Tensor(module_.tensors[target].second).copy_(value);
  });
  if (choice_.state_path.empty()) return status;
  // Where rank 0 sends, all ranks take part to the end.
  if (!status.ok() && !sent_) return status;
  const absl::Status of_state = Read(state_, [this](size_t index, const at::Tensor& value) {
    const std::string& name = state_.header.tensors[index].name;
    if (optimizer_loader_ && optimizer_loader_->Take(name, value)) return;
    KeepRandom(name, value);
  });
  if (status.ok()) status = of_state;
  if (!status.ok()) return status;
  if (optimizer_loader_) optimizer_loader_->Install();
  if (cpu_random_.defined()) {
    const at::Tensor all = accelerator_random_.defined() ? at::cat({cpu_random_, accelerator_random_}) : cpu_random_;
    SetRandomState(all, AcceleratorsOf(module_.tensors));
  }
  return absl::OkStatus();
}

void CheckpointLoader::KeepRandom(const std::string& name, const at::Tensor& value) {
  const bool ours = value.dim() == 2 && value.scalar_type() == at::kByte && RankIn(group_) < value.size(0);
  if (!ours) return;
  if (name == kCpuRandomName) cpu_random_ = value.select(0, RankIn(group_)).clone();
  if (name == kAcceleratorRandomName) accelerator_random_ = value.select(0, RankIn(group_)).clone();
}

}  // namespace ddprun
