#include "worker_runtime/checkpoint/checkpoint_names.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "worker_runtime/checkpoint/checksum.h"

namespace ddprun {
namespace {

constexpr char kStep[] = "step_";
constexpr char kState[] = ".state-";
constexpr char kExtension[] = ".safetensors";

// The digits only: no sign, no blanks.
std::optional<int64_t> StepOfDigits(absl::string_view digits) {
  int64_t step = 0;
  const bool all_digits = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!all_digits || !absl::SimpleAtoi(digits, &step)) return std::nullopt;
  return step;
}

}  // namespace

std::string ModelFileName(int64_t step) { return absl::StrFormat("%s%08d%s", kStep, step, kExtension); }

std::optional<int64_t> StepOfModelFile(absl::string_view name) {
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, kStep) || !absl::ConsumeSuffix(&digits, kExtension)) return std::nullopt;
  const std::optional<int64_t> step = StepOfDigits(digits);
  return step && ModelFileName(*step) == name ? step : std::nullopt;
}

std::string StateFileName(int64_t step, uint64_t checksum) {
  return absl::StrFormat("%s%08d%s%s%s", kStep, step, kState, ChecksumText(checksum), kExtension);
}

bool IsStateFile(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kStep) || !absl::ConsumeSuffix(&name, kExtension)) return false;
  const size_t state = name.find(kState);
  return state != absl::string_view::npos && StepOfDigits(name.substr(0, state)) &&
         ChecksumFromText(name.substr(state + sizeof(kState) - 1));
}

std::vector<int64_t> StepsToRemove(std::vector<KnownCheckpoint> known, int64_t saved, int keep) {
  std::vector<int64_t> remove;
  if (keep < 1) return remove;
  std::sort(known.begin(), known.end(),
            [](const KnownCheckpoint& a, const KnownCheckpoint& b) { return a.step > b.step; });
  int kept = 0;
  for (const KnownCheckpoint& checkpoint : known) {
    if (checkpoint.step == saved) {
      ++kept;
    } else if (kept >= keep) {
      remove.push_back(checkpoint.step);
    } else if (checkpoint.valid) {
      ++kept;
    }
  }
  return remove;
}

}  // namespace ddprun
