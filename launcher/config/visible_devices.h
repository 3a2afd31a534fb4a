#ifndef DDPRUN_LAUNCHER_CONFIG_VISIBLE_DEVICES_H_
#define DDPRUN_LAUNCHER_CONFIG_VISIBLE_DEVICES_H_

#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/config/cluster_environment.h"

// PURE. The accelerators of a node, and those of them that its workers see.
//
// InspectDevices (launcher/process/hardware.h) finds the devices of each vendor in files, without loading any library.
// ChooseDevices selects the vendor whose devices the workers use, and applies the lists in that vendor's variables as
// its driver or runtime does.
namespace ddprun::launcher {

struct Vendor {
  const char* device;      // "AMD GPU"
  const char* word;        // value of --nproc-per-node for its devices; auto takes any vendor's
  const char* looked_for;  // files that show its devices
  const char* outer;       // variable that selects and renumbers devices before `variable` does; may be null
  const char* variable;    // variable that lists the visible devices
  const char* stand_in;    // variable used if `variable` is unset or empty; may be null
};

// Ordered by preference of --nproc-per-node=auto.
inline constexpr Vendor kVendors[] = {
    {"NVIDIA GPU", "gpu", "/dev/nvidia*, /dev/dxg", nullptr, "CUDA_VISIBLE_DEVICES", nullptr},
    {"AMD GPU", "gpu", "/dev/kfd", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"},
    {"Ascend NPU", "npu", "/dev/davinci*", nullptr, "ASCEND_RT_VISIBLE_DEVICES", nullptr},
    {"Gaudi HPU", "hpu", "/dev/accel/*", nullptr, "HABANA_VISIBLE_MODULES", nullptr},
    {"Intel GPU", "xpu", "a discrete GPU in /sys/class/drm", nullptr, "ZE_AFFINITY_MASK", nullptr},
};
enum VendorIndex { kNvidia, kAmd, kAscend, kGaudi, kIntel };

struct Device {
  int index = 0;            // number in lists
  std::string name;         // name in lists: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"; empty: none
  std::optional<int> node;  // NUMA node, if known
  int mig_devices = 0;      // parts of a GPU in MIG mode; 1 for a part
};

struct DeviceFacts {
  std::array<std::vector<Device>, std::size(kVendors)> devices;  // indexed by VendorIndex
  std::map<std::string, std::string> lists;                      // variables of kVendors that are set
  std::string not_counted;                                       // "1 integrated Intel GPU"; empty: none
  std::string note;                                              // doubt about the count, for the log; may be empty
};

// Devices of one vendor, as the workers see them.
struct ChosenDevices {
  std::vector<Device> visible;                      // in the order of the workers' indices
  std::string source;                               // list in effect, "CUDA_VISIBLE_DEVICES=0,1"; else "device files"
  std::optional<std::vector<std::string>> entries;  // entries of that list; absent devices are included
  std::vector<std::string> variables;               // variables of a worker that sees one device (--virtual-local-rank)
  std::string summary;                              // "2 of 8 AMD GPUs", "none"
  std::string text;  // reason if none is visible: "this node has 4 NVIDIA GPUs, but CUDA_VISIBLE_DEVICES=-1 hides all"
  std::string note;  // unexpected number, for the log; may be empty
};

// Returns the devices of the first vendor that has visible ones. `word`: value of --nproc-per-node; empty: any vendor.
// With MIG a process sees a single part of a GPU, so only one counts unless each worker gets its own (`one_each`).
// InvalidArgument: as ParseVisibleDevices.
absl::StatusOr<ChosenDevices> ChooseDevices(const DeviceFacts& facts, absl::string_view word, bool one_each);

// Returns the entries of a list: indices, names that begin with GPU- or MIG-, for Level Zero also DEVICE.TILE. As in
// the drivers the list ends at an empty entry or a negative number, for Ascend also at a blank; NoDevFiles (SLURM),
// none and void end it, too.
// InvalidArgument: an entry before the end is no device; one line with the variable, its value and what to do.
absl::StatusOr<std::vector<std::string>> ParseVisibleDevices(const Found<std::string>& visible);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_VISIBLE_DEVICES_H_
