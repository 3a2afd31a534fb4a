#include "launcher/config/visible_devices.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxShownBytes = 80;

bool IsName(absl::string_view device) { return absl::StartsWith(device, "GPU-") || absl::StartsWith(device, "MIG-"); }

std::string FoundText(const GpuFacts& facts) {
  if (facts.nvidia > 0) return absl::StrCat("this node has ", Counted(facts.nvidia, "NVIDIA GPU"));
  if (!facts.other.empty()) return absl::StrCat("this node has ", facts.other, ", whose GPUs are not counted");
  return "this node has no GPU (none of /dev/nvidia0, /dev/kfd and /dev/dxg)";
}

}  // namespace

std::optional<Found<std::string>> FindVisibleDevices(const EnvironmentLookup& environment) {
  for (const char* const name : {kHipVisibleDevices, kCudaVisibleDevices}) {
    const std::optional<std::string> value = environment(name);
    if (!value || (value->empty() && name == kHipVisibleDevices)) continue;
    return Found<std::string>{std::string(TrimValue(*value)), absl::StrCat(name, "=", Visible(*value, kMaxShownBytes))};
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<std::string>> ParseVisibleDevices(const Found<std::string>& visible) {
  std::vector<std::string> devices;
  for (const absl::string_view entry : absl::StrSplit(visible.value, ',')) {
    const absl::string_view device = TrimValue(entry);
    int index = 0;
    const bool is_index = absl::SimpleAtoi(device, &index);
    if (device.empty() || index < 0 || device == "NoDevFiles" || device == "none" || device == "void") break;
    if (!is_index && !IsName(device)) {
      return absl::InvalidArgumentError(absl::StrCat(
          visible.source, " is not a list of GPUs, such as 0,1: correct it, or unset the variable for all GPUs"));
    }
    devices.emplace_back(device);
  }
  return devices;
}

absl::StatusOr<GpuCount> CountGpus(const GpuFacts& facts) {
  GpuCount count{facts.nvidia, FoundText(facts)};
  if (!facts.visible) return count;
  const absl::StatusOr<std::vector<std::string>> devices = ParseVisibleDevices(*facts.visible);
  if (!devices.ok()) return devices.status();
  count.visible = 0;
  for (const std::string& device : *devices) {
    int index = 0;
    // The first index that no device has ends the list, as in CUDA.
    if (facts.nvidia == 0 || (absl::SimpleAtoi(device, &index) && index >= facts.nvidia)) break;
    ++count.visible;
  }
  if (count.visible == 0) {
    absl::StrAppend(&count.text, facts.nvidia > 0 ? ", but " : ", and ", facts.visible->source,
                    devices->empty() ? " hides all" : " names none of them");
  } else if (count.visible < static_cast<int>(devices->size())) {
    absl::StrAppend(&count.text, ", and ", facts.visible->source, " names others from ", (*devices)[count.visible],
                    " on");
  }
  return count;
}

}  // namespace ddprun::launcher
