#include "worker_runtime/process_group/nccl_loader.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr char kLibrary[] = "libddprun_nccl.so";
constexpr char kDriverFile[] = "/dev/nvidiactl";
constexpr size_t kMaxLinkerText = 500;

absl::Status Refused(absl::string_view why) { return absl::FailedPreconditionError(absl::StrCat("nccl: ", why)); }

std::string ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return ".";
  const absl::string_view name(path, length);
  return std::string(name.substr(0, name.rfind('/')));
}

std::vector<std::string> Candidates() {
  const char* const named = getenv(kNcclLibraryVariable);
  if (named != nullptr && *named != '\0') return {named};
  const std::string folder = ProgramFolder();
  return {absl::StrCat(folder, "/", kLibrary), absl::StrCat(folder, "/../lib/", kLibrary), kLibrary};
}

// Opens the first candidate that exists. A library that exists but can't be loaded is an error, not skipped.
absl::StatusOr<void*> Open() {
  const std::vector<std::string> candidates = Candidates();
  for (const std::string& path : candidates) {
    if (absl::StrContains(path, "/") && access(path.c_str(), F_OK) != 0) continue;
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    const std::string reason = OneLine(dlerror(), kMaxLinkerText);
    if (absl::StrContains(path, "/") || !absl::StrContains(reason, kLibrary)) {
      return Refused(absl::StrCat(path, " can't be loaded: ", reason));
    }
  }
  return Refused(absl::StrCat(kLibrary, " not found (searched ", absl::StrJoin(candidates, ", "), "); set ",
                              kNcclLibraryVariable, " to its path"));
}

absl::StatusOr<NcclPlugin*> Load() {
  if (!HostHasGpu()) {
    return Refused(
        "this host has no usable NVIDIA GPU (no /dev/nvidiactl, or CUDA_VISIBLE_DEVICES hides all); use gloo");
  }
  absl::StatusOr<void*> library = Open();
  if (!library.ok()) return library.status();
  const auto function = reinterpret_cast<NcclPluginFunction>(dlsym(*library, DDPRUN_NCCL_PLUGIN_ENTRY));
  if (function == nullptr)
    return Refused(absl::StrCat(kLibrary, " is not a ddprun plugin: no symbol ", DDPRUN_NCCL_PLUGIN_ENTRY));
  const NcclPluginEntry* const entry = function();
  if (strcmp(entry->build, DDPRUN_NCCL_PLUGIN_BUILD) != 0) {
    return Refused(absl::StrCat(kLibrary, " was built for another version (", entry->build, ") than this program (",
                                DDPRUN_NCCL_PLUGIN_BUILD, "); install both together"));
  }
  return entry->plugin;
}

}  // namespace

absl::Status CheckCudaWasLoadedInTime() {
  if (at::hasCUDA()) return absl::OkStatus();
  return Refused(
      "LibTorch looked for CUDA before CUDA's library was loaded, and does not look again; call ChooseDevice before "
      "torch::manual_seed and torch::cuda::is_available, or link the program with LibTorch's CUDA libraries");
}

bool HasGpu(const std::string& device_file, const char* visible_devices) {
  if (visible_devices != nullptr) {
    const absl::string_view first = absl::StripAsciiWhitespace(visible_devices);
    // CUDA reads the list up to the first entry that is not a device: a leading -1 hides all.
    if (first.empty() || first.front() == '-') return false;
  }
  return access(device_file.c_str(), F_OK) == 0;
}

bool HostHasGpu() { return HasGpu(kDriverFile, getenv("CUDA_VISIBLE_DEVICES")); }

absl::StatusOr<NcclPlugin*> LoadNcclPlugin() {
  static Mutex* const mutex = new Mutex;
  static NcclPlugin* loaded = nullptr;
  MutexLock lock(mutex);
  if (loaded != nullptr) return loaded;
  absl::StatusOr<NcclPlugin*> plugin = Load();
  if (plugin.ok()) loaded = *plugin;
  return plugin;
}

}  // namespace ddprun
