#ifndef DDPRUN_LAUNCHER_CONFIG_PORT_RANGE_H_
#define DDPRUN_LAUNCHER_CONFIG_PORT_RANGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// TCP ports first to last: 1 <= first <= last <= 65535.
struct PortRange {
  int first = 1;
  int last = 65535;
  bool Has(int port) const { return first <= port && port <= last; }
  // "20000-20100".
  std::string ToString() const;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

// Parses FIRST-LAST or FIRST:LAST. InvalidArgument: one line, without the flag's name.
absl::StatusOr<PortRange> ParsePortRange(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_PORT_RANGE_H_
