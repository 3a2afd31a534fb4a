#ifndef DDPRUN_LAUNCHER_CORE_PORT_RANGE_H_
#define DDPRUN_LAUNCHER_CORE_PORT_RANGE_H_

namespace ddprun::launcher {

// TCP ports first to last: 1 <= first <= last <= 65535.
struct PortRange {
  int first = 1;
  int last = 65535;
  bool Has(int port) const { return first <= port && port <= last; }
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_PORT_RANGE_H_
