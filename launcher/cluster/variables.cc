#include "launcher/cluster/variables.h"

#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/endpoint.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/visible_devices.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxShownBytes = 80;
constexpr double kGoldenRatio = 0.6180339887498949;  // (sqrt(5) - 1) / 2
constexpr double kSquareRoot = 0.41421356237309515;  // sqrt(2) - 1

// Smallest number from about `share` * n on that is coprime to n, so that n steps reach every port.
uint64_t Stride(uint64_t n, double share) {
  uint64_t stride = 1 + static_cast<uint64_t>(share * static_cast<double>(n - 1));
  while (std::gcd(stride, n) != 1) ++stride;
  return stride;
}

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
  DDPRUN_ASSIGN_OR_RETURN(const auto number, NumberVariable(environment, name, min, max));
  if (!number.has_value()) return std::nullopt;
  return Found<int>{static_cast<int>(*number), Assignment(name, absl::StrCat(*number))};
}

absl::StatusOr<std::optional<Found<int>>> VisibleGpus(const EnvironmentLookup& environment) {
  for (const Vendor& vendor : kVendors) {
    for (const char* const name : {vendor.variable, vendor.outer}) {
      const std::optional<std::string> list = name == nullptr ? std::nullopt : environment(name);
      // A variable with a stand-in has no effect if it is empty.
      if (!list.has_value() || (list->empty() && name == vendor.variable && vendor.stand_in != nullptr)) continue;
      const std::string source = Assignment(name, *list);
      DDPRUN_ASSIGN_OR_RETURN(const auto devices, ParseVisibleDevices({std::string(TrimValue(*list)), source}));
      return Found<int>{static_cast<int>(devices.size()), source};
    }
  }
  return std::nullopt;
}

std::string Assignment(absl::string_view name, absl::string_view value) {
  return absl::StrCat(name, "=", OneLine(value, kMaxShownBytes));
}

absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong) {
  return absl::InvalidArgumentError(absl::StrCat(name, "=", Visible(value, kMaxShownBytes), ": ", what_is_wrong));
}

int DerivedPort(uint32_t job, uint32_t step, int restart, const std::optional<PortRange>& range) {
  const PortRange ports = range.value_or(kDerivedPorts);
  const uint64_t n = ports.last - ports.first + 1;
  const uint64_t place = job * Stride(n, kGoldenRatio) + restart * Stride(n, kSquareRoot) + step;
  return ports.first + static_cast<int>(place % n);
}

int DerivedPort(absl::string_view job, const std::optional<PortRange>& range) {
  uint32_t hash = 2166136261;  // FNV-1a, which is the same in every launcher
  for (const char byte : job) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619;
  return DerivedPort(hash, 0, 0, range);
}

}  // namespace ddprun::launcher
