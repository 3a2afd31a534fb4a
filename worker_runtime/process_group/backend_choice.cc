#include "worker_runtime/process_group/backend_choice.h"

#include <stdlib.h>

#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

absl::Status Unknown(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("backend \"", text, "\": ", why,
                   "; expected gloo, nccl (nccl2 or nccl-legacy), or one per device as in cpu:gloo,cuda:nccl"));
}

// Returns nullopt if `name` is not a backend over NCCL.
std::optional<NcclEngine> EngineOf(absl::string_view name) {
  if (name == "nccl-legacy") return NcclEngine::kLegacy;
  if (name == "nccl2") return NcclEngine::kNccl2;
  if (name != "nccl") return std::nullopt;
  const char* const use = getenv("TORCH_DIST_USE_NCCL2");
  return use != nullptr && strcmp(use, "1") == 0 ? NcclEngine::kNccl2 : NcclEngine::kLegacy;
}

}  // namespace

std::string BackendChoice::ToString() const {
  const char* const nccl = engine == NcclEngine::kNccl2 ? "nccl2" : "nccl";
  if (gloo_for_cpu && gloo_for_cuda) return "gloo";
  if (gloo_for_cpu && nccl_for_cuda) return absl::StrCat("cpu:gloo,cuda:", nccl);
  if (gloo_for_cpu) return "cpu:gloo";
  return nccl_for_cuda ? nccl : "cuda:gloo";
}

absl::StatusOr<BackendChoice> ParseBackendChoice(absl::string_view text, bool device_is_cuda) {
  const std::string words = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  if (words.empty()) return ParseBackendChoice(device_is_cuda ? "cpu:gloo,cuda:nccl" : "gloo", device_is_cuda);
  if (words == "gloo") return BackendChoice{.gloo_for_cpu = true, .gloo_for_cuda = true};
  if (const auto engine = EngineOf(words)) return BackendChoice{.nccl_for_cuda = true, .engine = *engine};
  BackendChoice choice;
  for (absl::string_view part : absl::StrSplit(words, ',')) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(part, absl::MaxSplits(':', 1));
    const absl::string_view device = absl::StripAsciiWhitespace(entry.first);
    const absl::string_view backend = absl::StripAsciiWhitespace(entry.second);
    const std::optional<NcclEngine> engine = EngineOf(backend);
    if (device == "cpu" && engine.has_value()) return Unknown(text, "NCCL does not support CPU tensors");
    if (device != "cpu" && device != "cuda") return Unknown(text, absl::StrCat("\"", device, "\" is unknown"));
    if (backend != "gloo" && !engine.has_value()) return Unknown(text, absl::StrCat("\"", backend, "\" is unknown"));
    bool& chosen = device == "cpu"      ? choice.gloo_for_cpu
                   : engine.has_value() ? choice.nccl_for_cuda
                                        : choice.gloo_for_cuda;
    if (chosen || (device == "cuda" && (choice.gloo_for_cuda || choice.nccl_for_cuda))) {
      return Unknown(text, absl::StrCat(device, " is given twice"));
    }
    chosen = true;
    if (engine.has_value()) choice.engine = *engine;
  }
  return choice;
}

}  // namespace ddprun
