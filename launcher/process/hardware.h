#ifndef DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_
#define DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cpu_binding.h"
#include "launcher/config/visible_devices.h"

// CPUs and accelerators of this host, read from the files of its drivers below `root`: no vendor's library is loaded.
namespace ddprun::launcher {

// Number of CPUs that this process may use (its affinity, as set by a batch system), at least 1. Thread-safe.
int CpuCount();

// Devices of every vendor whose device files are there, in the order in which the vendor's runtime numbers them, and
// the variables that select some of them. In a container only the devices whose files it has are found.
//   - NVIDIA: /dev/nvidiaN, with names and PCI addresses of /proc/driver/nvidia; with WSL2 (/dev/dxg) one device
//   - AMD: GPU nodes of /sys/class/kfd with a file in /dev/dri; each partition (CPX) and each die of an MI250X is one
//   - Ascend: /dev/davinciN. Gaudi: /dev/accel/accelN of Habana Labs, numbered by module
//   - Intel: cards of /sys/class/drm with a file in /dev/dri, except integrated graphics; each tile is one, unless
//     ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE
// Thread-safe while no thread sets environment variables.
DeviceFacts InspectDevices(const std::string& root = "", const EnvironmentLookup& environment = nullptr);

// Reads the CPUs that this process may use, and the location of these, from /sys. Thread-safe.
// Unavailable: the CPUs can't be determined.
absl::StatusOr<CpuTopology> ReadCpuTopology();

// Like ReadCpuTopology, with /sys below `root`, and for these CPUs.
absl::StatusOr<CpuTopology> ReadCpuTopologyIn(const std::string& root, const std::vector<int>& allowed);

// Mask in the kernel's format: one bit per CPU. Empty if `cpus` is.
std::vector<unsigned long> CpuMask(const std::vector<int>& cpus);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_HARDWARE_H_
