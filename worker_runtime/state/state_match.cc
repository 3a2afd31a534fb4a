#include "worker_runtime/state/state_match.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMostNamed = 10;
// Python's DistributedDataParallel prepends it to all names of its state_dict.
constexpr char kWrapperPrefix[] = "module.";

std::string Bounded(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostNamed);
  std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

// Returns a hint on the likely cause if no name matches.
std::string Hint(const std::vector<std::string>& missing, const std::vector<std::string>& unexpected) {
  const auto all_wrapped = [](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!absl::StartsWith(name, kWrapperPrefix)) return false;
    }
    return !names.empty();
  };
  if (!missing.empty() && all_wrapped(unexpected)) {
    return "; the file was saved from DistributedDataParallel; save the module inside it";
  }
  if (!unexpected.empty() && all_wrapped(missing)) {
    return "; this module is DistributedDataParallel; load into the module inside it";
  }
  return "";
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::StatusOr<std::vector<std::vector<size_t>>> MatchState(absl::string_view file,
                                                            const std::vector<StateTarget>& targets,
                                                            const SafetensorsHeader& header) {
  std::map<absl::string_view, size_t> stored;
  for (size_t i = 0; i < header.tensors.size(); ++i) stored.emplace(header.tensors[i].name, i);

  std::vector<std::vector<size_t>> match(header.tensors.size());
  std::vector<bool> known(header.tensors.size(), false);
  std::vector<std::string> missing, unexpected, misshapen;
  for (size_t t = 0; t < targets.size(); ++t) {
    const StateTarget& target = targets[t];
    size_t found = header.tensors.size();
    const auto take = [&](absl::string_view name) {
      const auto tensor = stored.find(name);
      if (tensor == stored.end()) return;
      known[tensor->second] = true;
      if (found == header.tensors.size()) found = tensor->second;
    };
    for (const std::string& name : target.names) take(name);
    for (const std::string& name : target.names) {
      const auto instead = header.metadata.find(name);
      if (found == header.tensors.size() && instead != header.metadata.end()) take(instead->second);
    }
    if (found == header.tensors.size()) {
      missing.push_back(target.names.front());
    } else if (header.tensors[found].shape != target.shape) {
      misshapen.push_back(absl::StrCat(target.names.front(), " (", ShapeText(header.tensors[found].shape),
                                       " in the file, ", ShapeText(target.shape), " here)"));
    } else {
      match[found].push_back(t);
    }
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    if (!known[i]) unexpected.push_back(OneLine(header.tensors[i].name, 120));
  }
  std::vector<std::string> faults;
  if (!missing.empty()) faults.push_back(absl::StrCat("missing keys: ", Bounded(missing)));
  if (!unexpected.empty()) faults.push_back(absl::StrCat("unexpected keys: ", Bounded(unexpected)));
  if (!misshapen.empty()) faults.push_back(absl::StrCat("size mismatch: ", Bounded(misshapen)));
  if (faults.empty()) return match;
  return absl::InvalidArgumentError(
      absl::StrCat(file, " does not match the module: ", absl::StrJoin(faults, "; "), Hint(missing, unexpected)));
}

}  // namespace ddprun
