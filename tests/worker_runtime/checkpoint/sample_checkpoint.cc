#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun::testing {
namespace {

std::string Content(int64_t step, const std::string& name, size_t bytes) {
  std::string block = absl::StrCat(name, " of step ", step, ". ");
  std::minstd_rand random(static_cast<unsigned>(step + 1));
  while (block.size() < 997) block.push_back(static_cast<char>(random() >> 8));
  std::string content;
  content.reserve(bytes + block.size());
  while (content.size() < bytes) content += block;
  content.resize(bytes);
  return content;
}

SafetensorsHeader Layout(const std::vector<std::string>& names, int64_t step, size_t bytes,
                         CheckpointRound round = {}) {
  std::vector<SafetensorsTensor> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name, SafetensorsDtype::kU8, {static_cast<int64_t>(bytes)}, 0, 0});
  }
  return LayOutSafetensors(std::move(tensors), {{"ddprun.step", absl::StrCat(step)},
                                                {"ddprun.round", absl::StrCat(round.round)},
                                                {"ddprun.launcher_round", absl::StrCat(round.launcher_round)}})
      .value();
}

absl::Status Compare(const SafetensorsFile& file, int64_t step) {
  for (const SafetensorsTensor& tensor : file.header().tensors) {
    if (file.bytes(tensor) == Content(step, tensor.name, tensor.bytes())) continue;
    return absl::DataLossError(absl::StrCat(file.path(), ": ", tensor.name, " is not what was saved"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveSample(CheckpointFolder& folder, int64_t step, int keep, size_t bytes, CheckpointRound round,
                        int64_t run) {
  CheckpointPart model{Layout({"bias", "weight"}, step, bytes / 2, round), {}};
  CheckpointPart state{Layout({"moment"}, step, bytes), {}};
  const std::string bias = Content(step, "bias", bytes / 2), weight = Content(step, "weight", bytes / 2);
  const std::string moment = Content(step, "moment", bytes);
  model.bytes = {bias, weight};
  state.bytes = {moment};
  return folder.Save({run, step}, round, std::move(model), std::move(state), keep);
}

absl::StatusOr<Search> FindNewest(const CheckpointFolder& folder) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, folder.List());
  Search search;
  for (const CheckpointId id : ids) {
    absl::StatusOr<StoredCheckpoint> checkpoint = folder.OpenVerified(id);
    if (checkpoint.ok()) {
      search.newest = *std::move(checkpoint);
      break;
    }
    search.skipped.emplace_back(checkpoint.status().message());
  }
  return search;
}

absl::StatusOr<int64_t> NewestSample(const CheckpointFolder& folder) {
  DDPRUN_ASSIGN_OR_RETURN(const Search search, FindNewest(folder));
  if (!search.newest) return 0;
  const StoredCheckpoint& found = *search.newest;
  const int64_t step = found.info.progress.step;
  if (found.state == nullptr) return absl::DataLossError("the state is missing");
  DDPRUN_RETURN_IF_ERROR(Compare(*found.model, step));
  DDPRUN_RETURN_IF_ERROR(Compare(*found.state, step));
  return step;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names = ListFolder(folder).value();
  std::sort(names.begin(), names.end());
  return names;
}

void Overwrite(const std::string& path, absl::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

void Damage(const std::string& path, char bits) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::ate);
  file.seekg(-1, std::ios::end);
  const int last = file.peek();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ bits));
}

}  // namespace ddprun::testing
