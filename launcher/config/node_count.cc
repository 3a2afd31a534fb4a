#include "launcher/config/node_count.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

absl::StatusOr<NodeCount> ParseNodeCount(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() > 2) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is neither N nor MIN:MAX, such as 2 or 1:4"));
  }
  std::vector<int> numbers;
  for (const absl::string_view part : parts) {
    absl::StatusOr<int64_t> number = ParseInteger(part, 1, kMaxNodes);
    if (!number.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text), " is neither N nor MIN:MAX, such as 2 or 1:4: ", number.status().message()));
    }
    numbers.push_back(static_cast<int>(*number));
  }
  const NodeCount count{numbers.front(), numbers.back()};
  if (count.min > count.max) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " asks for at least ", count.min, " and at most ",
                                                   count.max, " nodes: put the smaller number first"));
  }
  return count;
}

absl::StatusOr<ProcessCount> ParseProcessCount(absl::string_view text) {
  if (text == "cpu") return ProcessCount{ProcessCount::Kind::kCpu};
  if (text == "gpu") return ProcessCount{ProcessCount::Kind::kGpu};
  if (text == "auto") return ProcessCount{ProcessCount::Kind::kAuto};
  absl::StatusOr<int64_t> number = ParseInteger(text, 1, kMaxProcesses);
  if (!number.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(number.status().message(), ", nor cpu, gpu or auto"));
  }
  return ProcessCount{ProcessCount::Kind::kNumber, static_cast<int>(*number)};
}

}  // namespace ddprun::launcher
