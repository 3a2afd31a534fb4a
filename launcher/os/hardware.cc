#include "launcher/os/hardware.h"

#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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

int GpuCount() {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  return GpuCountIn("/dev", visible == nullptr ? std::nullopt : std::make_optional<std::string>(visible));
}

int GpuCountIn(const std::string& device_folder, const std::optional<std::string>& visible_devices) {
  const int devices = DeviceFiles(device_folder);
  if (!visible_devices.has_value()) return devices;
  int count = 0;
  for (const absl::string_view part : absl::StrSplit(*visible_devices, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    int index = -1;
    const bool by_name = absl::StartsWith(name, "GPU-") || absl::StartsWith(name, "MIG-");
    // The first entry that is not a device ends the list; that is how "-1" hides all devices.
    if (!by_name && (!absl::SimpleAtoi(name, &index) || index < 0 || index >= devices)) break;
    ++count;
  }
  return devices == 0 ? 0 : count;
}

}  // namespace ddprun::launcher
