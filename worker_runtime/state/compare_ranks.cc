#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/state/optimizer_state.h"
#include "worker_runtime/state/state_loader.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {
namespace {

constexpr char kParameters[] = "the parameters";
constexpr char kBuffers[] = "the buffers";
constexpr char kOptimizer[] = "the optimizer";

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

// Checksums of the parts of a state, keyed by the part's name in messages.
std::map<std::string, uint64_t> Digest(const StateParts& parts) {
  std::map<std::string, ChecksumStream> streams;
  const std::set<std::string> parameters(parts.parameters.begin(), parts.parameters.end());
  for (size_t i = 0; i < parts.model.tensors.size(); ++i) {
    const bool trained = parameters.contains(parts.model.layout.tensors[i].name);
    streams[trained ? kParameters : kBuffers].Add(HostBytes(ToHost(parts.model.tensors[i])));
  }
  for (size_t i = 0; i < parts.rest.tensors.size(); ++i) {
    absl::string_view name = parts.rest.layout.tensors[i].name;
    const bool moment = absl::StartsWith(name, kOptimizerStatePrefix);
    // Skips LibTorch's archive of an optimizer of another kind, which contains addresses.
    if (!moment && !absl::ConsumePrefix(&name, kUserTensorPrefix)) continue;
    streams[moment ? kOptimizer : Quoted(name)].Add(HostBytes(ToHost(parts.rest.tensors[i])));
  }
  for (const auto& [key, text] : parts.rest.layout.metadata) {
    absl::string_view name = key;
    const bool groups = name == kOptimizerGroupsKey;  // learning rates and other options
    if (!groups && !absl::ConsumePrefix(&name, kStateTextPrefix)) continue;
    streams[groups ? kOptimizer : Quoted(name)].Add(text);
  }
  std::map<std::string, uint64_t> digest;
  for (const auto& [part, stream] : streams) digest[part] = stream.Value();
  return digest;
}

}  // namespace

absl::Status TrainingState::CheckSameOnAllRanks(ProcessGroup& group) const {
  std::map<std::string, uint64_t> mine;
  absl::Status status = TorchTry("comparing the training state", [&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const StateParts parts, Parts());
    mine = Digest(parts);
    return absl::OkStatus();
  });
  using nlohmann::json;
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, group.BroadcastText(json(mine).dump(-1, ' ', /*ensure_ascii=*/true,
                                                                                      json::error_handler_t::replace)));
  const auto root = json::parse(text).get<std::map<std::string, uint64_t>>();
  std::vector<std::string> differ, may_differ;
  for (const auto& [part, checksum] : mine) {
    const auto theirs = root.find(part);
    if (theirs != root.end() && theirs->second == checksum) continue;
    bool must = part == kParameters || part == kOptimizer;
    for (const auto& [name, added] : texts_) must |= added.same_on_all_ranks && part == Quoted(name);
    (must ? differ : may_differ).push_back(part);
  }
  if (!differ.empty() && status.ok()) {
    status = absl::FailedPreconditionError(absl::StrCat(
        "the ranks' training states differ: ", absl::StrJoin(differ, ", "), " of rank ", group.rank(),
        " (compared with rank 0); everything that a step changes must be part of the TrainingState, and every rank "
        "must change it alike"));
  } else if (!may_differ.empty()) {
    std::fputs(absl::StrCat("ddprun: rank ", group.rank(), ": ", absl::StrJoin(may_differ, ", "),
                            " of the training state differ from rank 0's; workers that join have the values of the "
                            "rank that sends its state\n")
                   .c_str(),
               stderr);
  }
  return OutcomeOfAll(&group, status);
}

}  // namespace ddprun
