#include "launcher/process/hardware.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

int DeviceFiles(const std::string& folder_name) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(folder_name.c_str()), closedir);
  int count = 0;
  while (const dirent* entry = folder != nullptr ? readdir(folder.get()) : nullptr) {
    absl::string_view name = entry->d_name;
    if (!absl::ConsumePrefix(&name, "nvidia") || name.empty()) continue;
    count += std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
  }
  return count;
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

GpuFacts InspectGpus(const std::string& device_folder) {
  GpuFacts facts;
  facts.nvidia = DeviceFiles(device_folder);
  facts.visible = FindVisibleDevices([](const std::string& name) {
    const char* const value = getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::make_optional<std::string>(value);
  });
  static constexpr std::pair<const char*, const char*> kOthers[] = {{"/kfd", "AMD"}, {"/dxg", "WSL2"}};
  for (const auto& [file, kind] : kOthers) {
    const std::string path = device_folder + file;
    if (facts.other.empty() && access(path.c_str(), F_OK) == 0) facts.other = absl::StrCat(path, " (", kind, ")");
  }
  return facts;
}

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

struct Gpu {
  std::string uuid;
  int node;
};

// Sorted by PCI address, which is CUDA's order if all GPUs are of the same model.
std::vector<Gpu> Gpus(const std::string& root) {
  std::vector<Gpu> gpus;
  const std::string folder = absl::StrCat(root, "/proc/driver/nvidia/gpus");
  for (const std::string& address : Entries(folder)) {
    Gpu gpu;
    for (const absl::string_view line :
         absl::StrSplit(Read(absl::StrCat(folder, "/", address, "/information")), '\n')) {
      const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(line, absl::MaxSplits(':', 1));
      if (entry.first == "GPU UUID") gpu.uuid = std::string(absl::StripAsciiWhitespace(entry.second));
    }
    // -1 on hosts with one node.
    const std::string node = absl::StrCat(root, "/sys/bus/pci/devices/", absl::AsciiStrToLower(address), "/numa_node");
    gpu.node = std::max(0, ReadNumber(node, 0));
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

absl::StatusOr<std::vector<int>> VisibleGpuNodes(const std::vector<Gpu>& gpus,
                                                 const std::optional<Found<std::string>>& visible) {
  std::vector<int> nodes;
  if (!visible) {
    for (const Gpu& gpu : gpus) nodes.push_back(gpu.node);
    return nodes;
  }
  const absl::StatusOr<std::vector<std::string>> devices = ParseVisibleDevices(*visible);
  if (!devices.ok()) return devices.status();
  for (const std::string& device : *devices) {
    int index = -1;
    if (absl::SimpleAtoi(device, &index)) {
      if (index >= static_cast<int>(gpus.size())) break;  // ends the list, as in CUDA
      nodes.push_back(gpus[index].node);
      continue;
    }
    const auto gpu =
        std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& g) { return absl::StartsWith(g.uuid, device); });
    if (gpu == gpus.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(visible->source, " names ", device, ", whose location is not known"));
    }
    nodes.push_back(gpu->node);
  }
  return nodes;
}

}  // namespace

std::vector<unsigned long> CpuMask(const std::vector<int>& cpus) {
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    if (mask.size() <= static_cast<size_t>(cpu / kBits)) mask.resize(cpu / kBits + 1);
    mask[cpu / kBits] |= 1ul << (cpu % kBits);
  }
  return mask;
}

absl::StatusOr<CpuTopology> ReadCpuTopologyIn(const std::string& root, const std::vector<int>& allowed,
                                              const std::optional<Found<std::string>>& visible_devices) {
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
  absl::StatusOr<std::vector<int>> gpu_nodes = VisibleGpuNodes(Gpus(root), visible_devices);
  if (!gpu_nodes.ok()) return gpu_nodes.status();
  topology.gpu_nodes = *std::move(gpu_nodes);
  return topology;
}

absl::StatusOr<CpuTopology> ReadCpuTopology(const std::optional<Found<std::string>>& visible_devices) {
  std::vector<int> allowed;
  // The set must be at least as large as the kernel's, which may be built for more than 1024 CPUs.
  for (size_t words = 1024 / kBits; words <= 1024 * 1024 / kBits && allowed.empty(); words *= 2) {
    std::vector<unsigned long> mask(words);
    if (sched_getaffinity(0, words * sizeof(unsigned long), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    for (size_t cpu = 0; cpu < words * kBits; ++cpu) {
      if (mask[cpu / kBits] >> (cpu % kBits) & 1) allowed.push_back(static_cast<int>(cpu));
    }
  }
  return ReadCpuTopologyIn("", allowed, visible_devices);
}

}  // namespace ddprun::launcher
