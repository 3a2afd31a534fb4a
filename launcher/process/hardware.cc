#include "launcher/process/hardware.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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

}  // namespace ddprun::launcher
