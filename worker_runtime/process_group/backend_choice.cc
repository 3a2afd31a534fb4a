#include "worker_runtime/process_group/backend_choice.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

absl::Status Unknown(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("backend \"", text, "\": ", why,
                                                 "; expected gloo, nccl, or one per device as in cpu:gloo,cuda:nccl"));
}

}  // namespace

std::string BackendChoice::ToString() const {
  if (gloo_for_cpu && gloo_for_cuda) return "gloo";
  if (gloo_for_cpu && nccl_for_cuda) return "cpu:gloo,cuda:nccl";
  if (gloo_for_cpu) return "cpu:gloo";
  return nccl_for_cuda ? "nccl" : "cuda:gloo";
}

absl::StatusOr<BackendChoice> ParseBackendChoice(absl::string_view text, bool device_is_cuda) {
  const std::string words = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  if (words.empty()) return ParseBackendChoice(device_is_cuda ? "cpu:gloo,cuda:nccl" : "gloo", device_is_cuda);
  if (words == "gloo") return BackendChoice{.gloo_for_cpu = true, .gloo_for_cuda = true};
  if (words == "nccl") return BackendChoice{.nccl_for_cuda = true};
  BackendChoice choice;
  for (absl::string_view part : absl::StrSplit(words, ',')) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(part, absl::MaxSplits(':', 1));
    const absl::string_view device = absl::StripAsciiWhitespace(entry.first);
    const absl::string_view backend = absl::StripAsciiWhitespace(entry.second);
    if (device == "cpu" && backend == "nccl") return Unknown(text, "nccl does not support CPU tensors");
    if (device != "cpu" && device != "cuda") return Unknown(text, absl::StrCat("\"", device, "\" is unknown"));
    if (backend != "gloo" && backend != "nccl") return Unknown(text, absl::StrCat("\"", backend, "\" is unknown"));
    bool& chosen = device == "cpu"     ? choice.gloo_for_cpu
                   : backend == "gloo" ? choice.gloo_for_cuda
                                       : choice.nccl_for_cuda;
    if (chosen || (device == "cuda" && (choice.gloo_for_cuda || choice.nccl_for_cuda))) {
      return Unknown(text, absl::StrCat(device, " is given twice"));
    }
    chosen = true;
  }
  return choice;
}

}  // namespace ddprun
