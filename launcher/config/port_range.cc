#include "launcher/config/port_range.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

std::string PortRange::ToString() const { return absl::StrCat(first, "-", last); }

absl::StatusOr<PortRange> ParsePortRange(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::ByAnyChar("-:"));
  if (parts.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not FIRST-LAST, such as 20000-20100"));
  }
  int ports[2];
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<int64_t> port = ParseInteger(parts[i], 1, 65535);
    if (!port.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text), " is not FIRST-LAST, such as 20000-20100: ", port.status().message()));
    }
    ports[i] = static_cast<int>(*port);
  }
  if (ports[0] > ports[1]) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " ends before it starts: put the smaller port first"));
  }
  return PortRange{ports[0], ports[1]};
}

}  // namespace ddprun::launcher
