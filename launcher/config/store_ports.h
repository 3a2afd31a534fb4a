#ifndef DDPRUN_LAUNCHER_CONFIG_STORE_PORTS_H_
#define DDPRUN_LAUNCHER_CONFIG_STORE_PORTS_H_

#include <vector>

#include "launcher/config/port_range.h"

namespace ddprun::launcher {

// The parts of `range` in which a new store is to look for a port, in this order: beyond the port of the last store,
// as long as there are others, so that who still has that one is not answered; and never `reserved`, the endpoint's,
// which the server listens on or will. No part is empty; `last_store` 0: there was none.
std::vector<PortRange> StorePorts(const PortRange& range, int reserved, int last_store);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_STORE_PORTS_H_
