#ifndef DDPRUN_LAUNCHER_CONFIG_STORE_PORTS_H_
#define DDPRUN_LAUNCHER_CONFIG_STORE_PORTS_H_

#include <vector>

#include "launcher/config/port_range.h"

namespace ddprun::launcher {

// Returns the parts of `range` in which to look for a port for a new store, in this order; no part is empty. The search
// starts above `last_store`, the port of the previous store (0: none), and tries that port last, so that clients of the
// previous store do not reach the new one. `reserved`, the port of the endpoint, is excluded.
std::vector<PortRange> StorePorts(const PortRange& range, int reserved, int last_store);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_STORE_PORTS_H_
