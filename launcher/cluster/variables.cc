#include "launcher/cluster/variables.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxShownBytes = 80;

}  // namespace

std::optional<std::string> Variable(const EnvironmentLookup& environment, const std::string& name) {
  std::optional<std::string> value = environment(name);
  if (value.has_value() && (value->empty() || *value == "(null)")) return std::nullopt;
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

std::string Assignment(absl::string_view name, absl::string_view value) {
  return absl::StrCat(name, "=", OneLine(value, kMaxShownBytes));
}

absl::Status BadVariable(absl::string_view name, absl::string_view value, absl::string_view what_is_wrong) {
  return absl::InvalidArgumentError(absl::StrCat(Assignment(name, value), ": ", what_is_wrong));
}

}  // namespace ddprun::launcher
