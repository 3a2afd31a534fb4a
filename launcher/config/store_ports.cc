#include "launcher/config/store_ports.h"

#include <algorithm>

namespace ddprun::launcher {

std::vector<PortRange> StorePorts(const PortRange& range, int reserved, int last_store) {
  const int next = range.Has(last_store) ? last_store + 1 : range.first;
  std::vector<PortRange> parts;
  for (const PortRange& half : {PortRange{next, range.last}, PortRange{range.first, next - 1}}) {
    if (!half.Has(reserved)) {
      parts.push_back(half);
    } else {
      parts.push_back({half.first, reserved - 1});
      parts.push_back({reserved + 1, half.last});
    }
  }
  parts.erase(std::remove_if(parts.begin(), parts.end(), [](const PortRange& p) { return p.first > p.last; }),
              parts.end());
  return parts;
}

}  // namespace ddprun::launcher
