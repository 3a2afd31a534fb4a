#include "launcher/cluster/variables.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/visible_devices.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxShownBytes = 80;

}  // namespace

std::optional<std::string> Variable(const EnvironmentLookup& environment, const std::string& name) {
  std::string value(TrimValue(environment(name).value_or("")));
  if (value.empty() || value == "(null)") return std::nullopt;
  return value;
}

absl::StatusOr<std::optional<int64_t>> NumberVariable(const EnvironmentLookup& environment, const std::string& name,
                                                      int64_t min, int64_t max) {
  const std::optional<std::string> value = Variable(environment, name);
  if (!value.has_value()) return std::nullopt;
  const absl::StatusOr<int64_t> number = ParseInteger(*value, min, max);
  if (!number.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", number.status().message()));
  return std::optional<int64_t>(*number);
}

absl::StatusOr<std::optional<Found<int>>> FoundNumber(const EnvironmentLookup& environment, const char* name,
                                                      int64_t min, int64_t max) {
  if (name == nullptr) return std::nullopt;
  const auto number = NumberVariable(environment, name, min, max);
  if (!number.ok()) return number.status();
  if (!number->has_value()) return std::nullopt;
  return Found<int>{static_cast<int>(**number), Assignment(name, absl::StrCat(**number))};
}

int CountDevices(absl::string_view list) {
  int count = 0;
  for (const absl::string_view device : absl::StrSplit(list, ',')) {
    if (device.empty() || device == "-1" || device == "NoDevFiles") break;
    ++count;
  }
  return count;
}

absl::StatusOr<std::optional<Found<int>>> VisibleGpus(const EnvironmentLookup& environment) {
  for (const char* const name : {kCudaVisibleDevices, "ROCR_VISIBLE_DEVICES"}) {
    const std::optional<std::string> list = environment(name);
    if (!list.has_value()) continue;
    const std::string source = Assignment(name, *list);
    const auto devices = ParseVisibleDevices({std::string(TrimValue(*list)), source});
    if (!devices.ok()) return devices.status();
    return Found<int>{static_cast<int>(devices->size()), source};
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<std::vector<std::string>>> HostNames(const EnvironmentLookup& environment,
                                                                  const std::string& name) {
  const std::optional<std::string> value = Variable(environment, name);
  if (!value.has_value()) return std::nullopt;
  std::vector<std::string> hosts;
  for (const absl::string_view word : absl::StrSplit(*value, absl::ByAnyChar(" \t\n,[]\""), absl::SkipEmpty())) {
    const absl::StatusOr<std::string> host = ParseHost(word);
    if (!host.ok()) return BadVariable(name, *value, host.status().message());
    hosts.push_back(*host);
  }
  if (hosts.empty()) return BadVariable(name, *value, "it names no host");
  if (hosts.size() > rendezvous::kMaxNodes) {
    return BadVariable(name, *value, absl::StrCat("a job has at most ", rendezvous::kMaxNodes, " nodes"));
  }
  return std::optional(std::move(hosts));
}

std::string Assignment(absl::string_view name, absl::string_view value) {
  return absl::StrCat(name, "=", OneLine(value, kMaxShownBytes));
}

absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong) {
  return absl::InvalidArgumentError(absl::StrCat(name, "=", Visible(value, kMaxShownBytes), ": ", what_is_wrong));
}

}  // namespace ddprun::launcher
