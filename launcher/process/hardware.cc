#include "launcher/process/hardware.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr int kBits = sizeof(unsigned long) * CHAR_BIT;

std::string Read(const std::string& file) {
  std::ifstream in(file);
  const std::string content(std::istreambuf_iterator<char>(in), {});
  return std::string(absl::StripAsciiWhitespace(content));
}

int ReadNumber(const std::string& file, int otherwise) {
  int number = 0;
  return absl::SimpleAtoi(Read(file), &number) ? number : otherwise;
}

// Lowest CPU of the list in `file`; `otherwise` if it has none.
int LowestIn(const std::string& file, int otherwise) {
  const std::optional<std::vector<int>> cpus = ParseCpuList(Read(file));
  return cpus && !cpus->empty() ? *std::min_element(cpus->begin(), cpus->end()) : otherwise;
}

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// "node12" -> 12.
std::optional<int> NumberAfter(absl::string_view word, absl::string_view name) {
  int number = 0;
  if (!absl::StartsWith(name, word) || !absl::SimpleAtoi(name.substr(word.size()), &number)) return std::nullopt;
  return number;
}

std::map<int, int> NodesOfCpus(const std::string& root) {
  std::map<int, int> nodes;
  const std::string folder = absl::StrCat(root, "/sys/devices/system/node");
  for (const std::string& name : Entries(folder)) {
    const std::optional<int> node = NumberAfter("node", name);
    if (!node) continue;
    const std::optional<std::vector<int>> cpus = ParseCpuList(Read(absl::StrCat(folder, "/", name, "/cpulist")));
    for (const int cpu : cpus.value_or(std::vector<int>())) nodes[cpu] = *node;
  }
  return nodes;
}

// Lowest CPU that shares the highest-level cache of `cpu`, instruction caches excluded.
int CacheOf(const std::string& cpu_folder, int cpu) {
  int level = -1, result = cpu;
  for (const std::string& name : Entries(absl::StrCat(cpu_folder, "/cache"))) {
    const std::string cache = absl::StrCat(cpu_folder, "/cache/", name);
    if (!NumberAfter("index", name) || Read(cache + "/type") == "Instruction") continue;
    const int its_level = ReadNumber(cache + "/level", -1);
    if (its_level <= level) continue;
    level = its_level;
    result = LowestIn(cache + "/shared_cpu_list", cpu);
  }
  return result;
}

bool Exists(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

// Numbers of the entries PREFIX<N> of a folder, in ascending order.
std::vector<int> Numbered(const std::string& folder, absl::string_view prefix) {
  std::vector<int> numbers;
  for (const std::string& name : Entries(folder)) {
    const std::optional<int> number = NumberAfter(prefix, name);
    if (number && *number >= 0) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// NUMA node of a PCI device, whose file has -1 on hosts with one node; absent: there is no such device.
std::optional<int> NodeOf(const std::string& pci_device) {
  const int node = ReadNumber(absl::StrCat(pci_device, "/numa_node"), INT_MIN);
  return node == INT_MIN ? std::nullopt : std::make_optional(std::max(0, node));
}

// Values of a file with lines "KEY<separator> VALUE".
std::map<std::string, std::string> Properties(const std::string& file, char separator) {
  std::map<std::string, std::string> properties;
  for (const absl::string_view line : absl::StrSplit(Read(file), '\n')) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(line, absl::MaxSplits(separator, 1));
    properties[std::string(entry.first)] = std::string(absl::StripAsciiWhitespace(entry.second));
  }
  return properties;
}

uint64_t Number(const std::map<std::string, std::string>& properties, const std::string& key) {
  uint64_t number = 0;
  const auto property = properties.find(key);
  return property != properties.end() && absl::SimpleAtoi(property->second, &number) ? number : 0;
}

// Compute instances below giN/ciN; without MIG the folder does not exist.
int MigDevices(const std::string& folder) {
  int count = 0;
  for (const int gi : Numbered(folder, "gi")) count += Numbered(absl::StrCat(folder, "/gi", gi), "ci").size();
  return count;
}

// Sorted by PCI address, which is CUDA's order if all GPUs are of the same model; those without an address last.
std::vector<Device> NvidiaDevices(const std::string& root) {
  const std::vector<int> files = Numbered(absl::StrCat(root, "/dev"), "nvidia");
  std::set<int> rest(files.begin(), files.end());
  std::vector<Device> devices;
  const std::string proc = absl::StrCat(root, "/proc/driver/nvidia/");
  for (const std::string& address : Entries(proc + "gpus")) {
    const auto information = Properties(absl::StrCat(proc, "gpus/", address, "/information"), ':');
    const auto uuid = information.find("GPU UUID");
    const int minor = static_cast<int>(Number(information, "Device Minor"));
    if (rest.erase(minor) == 0) continue;
    devices.push_back({.name = uuid == information.end() ? "" : uuid->second,
                       .node = NodeOf(absl::StrCat(root, "/sys/bus/pci/devices/", absl::AsciiStrToLower(address))),
                       .mig_devices = MigDevices(absl::StrCat(proc, "capabilities/gpu", minor, "/mig"))});
  }
  devices.resize(devices.size() + rest.size());
  return devices;
}

// Ordered as the nodes, which is ROCr's and HIP's order.
std::vector<Device> AmdDevices(const std::string& root) {
  std::vector<Device> devices;
  if (!Exists(root + "/dev/kfd")) return devices;
  const std::string nodes = absl::StrCat(root, "/sys/class/kfd/kfd/topology/nodes");
  for (const int number : Numbered(nodes, "")) {
    const std::string node = absl::StrCat(nodes, "/", number);
    // The kernel refuses to read both files of a GPU that the cgroup hides.
    const auto properties = Properties(node + "/properties", ' ');
    if (Number(properties, "simd_count") == 0 || ReadNumber(node + "/gpu_id", 0) == 0) continue;
    if (!Exists(absl::StrCat(root, "/dev/dri/renderD", Number(properties, "drm_render_minor")))) continue;
    // The higher bits, in some versions the lowest, are the partition's number.
    const uint64_t location = Number(properties, "location_id") & 0xffff;
    const auto at = [&](uint64_t function) {
      return NodeOf(absl::StrFormat("%s/sys/bus/pci/devices/%04x:%02x:%02x.%x", root, Number(properties, "domain"),
                                    location >> 8, location >> 3 & 0x1f, function));
    };
    const std::optional<int> exact = at(location & 7);
    const uint64_t id = Number(properties, "unique_id");
    devices.push_back({.name = id == 0 ? "" : absl::StrFormat("GPU-%016x", id), .node = exact ? exact : at(0)});
  }
  return devices;
}

// Driver and device file do not name each other's PCI device, so locations are known only if there are as many.
std::vector<Device> AscendDevices(const std::string& root) {
  std::vector<Device> devices(Numbered(root + "/dev", "davinci").size());
  const std::string pci = absl::StrCat(root, "/sys/bus/pci/devices");
  std::vector<std::optional<int>> nodes;
  for (const std::string& address : devices.empty() ? std::vector<std::string>() : Entries(pci)) {
    const std::string device = absl::StrCat(pci, "/", address);
    if (Read(device + "/vendor") != "0x19e5" || !absl::StartsWith(Read(device + "/class"), "0x1200")) continue;
    nodes.push_back(NodeOf(device));
  }
  for (size_t i = 0; i < nodes.size() && nodes.size() == devices.size(); ++i) devices[i].node = nodes[i];
  return devices;
}

std::vector<Device> GaudiDevices(const std::string& root) {
  std::vector<Device> devices;
  for (const int number : Numbered(root + "/sys/class/accel", "accel")) {
    const std::string device = absl::StrCat(root, "/sys/class/accel/accel", number, "/device");
    if (Read(device + "/vendor") != "0x1da3" || !Exists(absl::StrCat(root, "/dev/accel/accel", number))) continue;
    devices.push_back({.index = ReadNumber(device + "/module_id", number), .node = NodeOf(device)});
  }
  std::sort(devices.begin(), devices.end(), [](const Device& a, const Device& b) { return a.index < b.index; });
  return devices;
}

// Ordered by PCI address. `integrated`: number of those that are left out, which are always device 2 of the first bus.
std::vector<Device> IntelDevices(const std::string& root, bool flat, int* integrated) {
  std::map<std::string, std::vector<Device>> by_address;
  for (const int number : Numbered(root + "/sys/class/drm", "card")) {
    const std::string card = absl::StrCat(root, "/sys/class/drm/card", number), device = card + "/device";
    if (Read(device + "/vendor") != "0x8086") continue;
    const std::string address = Properties(device + "/uevent", '=')["PCI_SLOT_NAME"];
    if (address == "0000:00:02.0") {
      ++*integrated;
      continue;
    }
    const std::vector<int> render = Numbered(device + "/drm", "renderD");
    if (render.empty() || !Exists(absl::StrCat(root, "/dev/dri/renderD", render[0]))) continue;
    // Drivers xe and i915.
    const size_t tiles = std::max(Numbered(device, "tile").size(), Numbered(card + "/gt", "gt").size());
    by_address[address].assign(flat ? std::max<size_t>(1, tiles) : 1, {.node = NodeOf(device)});
  }
  std::vector<Device> devices;
  for (const auto& [unused, tiles] : by_address) devices.insert(devices.end(), tiles.begin(), tiles.end());
  return devices;
}

// WSL2 passes the GPUs of Windows through /dev/dxg, without their vendors' names. CUDA's library is there if one is
// NVIDIA's.
void AddWslDevices(const std::string& root, DeviceFacts& facts) {
  if (!Exists(root + "/dev/dxg") || !facts.devices[kNvidia].empty()) return;
  int gpus = 0;
  for (const std::string& name : Entries(root + "/sys/bus/vmbus/devices")) {
    // Class of a virtual GPU in the driver dxgkrnl.
    gpus += Read(absl::StrCat(root, "/sys/bus/vmbus/devices/", name, "/class_id")) ==
            "{6e382d18-3336-4f4b-acc4-2b7703d4df4a}";
  }
  const std::string shown = absl::StrCat(Counted(gpus, "GPU"), " of Windows (/dev/dxg)");
  if (!Exists(root + "/usr/lib/wsl/lib/libcuda.so.1")) {
    facts.not_counted = absl::StrCat(shown, " without CUDA");
    return;
  }
  facts.devices[kNvidia].resize(1);
  if (gpus > 1) {
    facts.note = absl::StrCat("WSL2 has ", shown, ", whose vendors are not known: taking 1; give a number for more");
  }
}

}  // namespace

int CpuCount() {
  // The set must be at least as large as the kernel's, which may be built for more than 1024 CPUs.
  for (int cpus = 1024; cpus <= 1024 * 1024; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus), [](cpu_set_t* s) { CPU_FREE(s); });
    const size_t size = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, size, set.get()) == 0) return std::max(1, CPU_COUNT_S(size, set.get()));
    if (errno != EINVAL) break;
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

DeviceFacts InspectDevices(const std::string& root, const EnvironmentLookup& environment) {
  const auto variable = [&](const char* name) -> std::optional<std::string> {
    if (environment) return environment(name);
    const char* const value = getenv(name);
    return value == nullptr ? std::nullopt : std::make_optional<std::string>(value);
  };
  DeviceFacts facts;
  int integrated = 0;
  const bool flat = variable("ZE_FLAT_DEVICE_HIERARCHY") != "COMPOSITE";
  facts.devices[kNvidia] = NvidiaDevices(root);
  facts.devices[kAmd] = AmdDevices(root);
  facts.devices[kAscend] = AscendDevices(root);
  facts.devices[kGaudi] = GaudiDevices(root);
  facts.devices[kIntel] = IntelDevices(root, flat, &integrated);
  if (integrated > 0) facts.not_counted = Counted(integrated, "integrated Intel GPU");
  AddWslDevices(root, facts);
  for (size_t i = 0; i < facts.devices.size(); ++i) {
    std::vector<Device>& devices = facts.devices[i];
    for (size_t n = 0; n < devices.size() && i != kGaudi; ++n) devices[n].index = static_cast<int>(n);
    for (const char* const name : {kVendors[i].outer, kVendors[i].variable, kVendors[i].stand_in}) {
      const std::optional<std::string> list = name == nullptr ? std::nullopt : variable(name);
      if (list) facts.lists[name] = *list;
    }
  }
  return facts;
}

std::vector<unsigned long> CpuMask(const std::vector<int>& cpus) {
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    if (mask.size() <= static_cast<size_t>(cpu / kBits)) mask.resize(cpu / kBits + 1);
    mask[cpu / kBits] |= 1ul << (cpu % kBits);
  }
  return mask;
}

absl::StatusOr<CpuTopology> ReadCpuTopologyIn(const std::string& root, const std::vector<int>& allowed) {
  CpuTopology topology;
  const std::map<int, int> nodes = NodesOfCpus(root);
  for (const int cpu : allowed) {
    const std::string folder = absl::StrCat(root, "/sys/devices/system/cpu/cpu", cpu);
    const auto node = nodes.find(cpu);
    topology.cpus[cpu] = {node == nodes.end() ? 0 : node->second,
                          ReadNumber(folder + "/topology/physical_package_id", 0),
                          LowestIn(folder + "/topology/thread_siblings_list", cpu), CacheOf(folder, cpu)};
  }
  if (topology.cpus.empty()) return absl::UnavailableError("the CPUs that this process may use are not known");
  return topology;
}

absl::StatusOr<CpuTopology> ReadCpuTopology() {
  std::vector<int> allowed;
  // The set must be at least as large as the kernel's, which may be built for more than 1024 CPUs.
  for (size_t words = 1024 / kBits; words <= 1024 * 1024 / kBits && allowed.empty(); words *= 2) {
    std::vector<unsigned long> mask(words);
    if (sched_getaffinity(0, words * sizeof(unsigned long), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    for (size_t cpu = 0; cpu < words * kBits; ++cpu) {
      if (mask[cpu / kBits] >> (cpu % kBits) & 1) allowed.push_back(static_cast<int>(cpu));
    }
  }
  return ReadCpuTopologyIn("", allowed);
}

}  // namespace ddprun::launcher
