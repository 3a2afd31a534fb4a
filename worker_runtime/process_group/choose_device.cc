#include "worker_runtime/process_group/choose_device.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker_runtime/base/torch_try.h"

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
  DDPRUN_ASSIGN_OR_RETURN(void* const library, Open());
  const auto function = reinterpret_cast<NcclPluginFunction>(dlsym(library, DDPRUN_NCCL_PLUGIN_ENTRY));
  if (function == nullptr)
    return Refused(absl::StrCat(kLibrary, " is not a ddprun plugin: no symbol ", DDPRUN_NCCL_PLUGIN_ENTRY));
  const NcclPluginEntry* const entry = function();
  if (strcmp(entry->build, DDPRUN_NCCL_PLUGIN_BUILD) != 0) {
    return Refused(absl::StrCat(kLibrary, " was built for another version (", entry->build, ") than this program (",
                                DDPRUN_NCCL_PLUGIN_BUILD, "); install both together"));
  }
  return entry->plugin;
}

absl::StatusOr<c10::Device> Gpu(int index, bool is_local_rank) {
  DDPRUN_ASSIGN_OR_RETURN(NcclPlugin* const plugin, LoadNcclPlugin());
  int count = 0;
  absl::Status status = TorchTry("", [&] {
    count = plugin->DeviceCount();
    return absl::OkStatus();
  });
  if (!status.ok()) return absl::FailedPreconditionError(absl::StrCat("no usable GPU: ", status.message()));
  DDPRUN_RETURN_IF_ERROR(CheckCudaWasLoadedInTime());
  if (index >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no device cuda:", index, is_local_rank ? " (the GPU of this local rank)" : "", ": this process sees ",
        Counted(count, "GPU"), "; start at most that many workers per node, or use cpu"));
  }
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  status = TorchTry("", [&] {
    plugin->UseDevice(device);
    return absl::OkStatus();
  });
  if (!status.ok())
    return absl::FailedPreconditionError(absl::StrCat(device.str(), " can't be used: ", status.message()));
  return device;
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

absl::StatusOr<c10::Device> ChooseDevice(const WorkerEnv& env, absl::string_view wish) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (wish == "cpu") return cpu;
  if (wish == "cuda") return Gpu(env.local_rank, true);
  if (wish == "auto" || wish.empty()) {
    if (!HostHasGpu()) return cpu;
    absl::StatusOr<c10::Device> gpu = Gpu(env.local_rank, true);
    if (!absl::IsFailedPrecondition(gpu.status())) return gpu;
    fprintf(stderr, "device auto: using the CPU, although this host has a GPU: %s\n",
            std::string(gpu.status().message()).c_str());
    return cpu;
  }
  int index = -1;
  absl::string_view number = wish;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0) return Gpu(index, false);
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", wish, "\": must be auto, cpu, cuda, or one GPU as in cuda:1"));
}

}  // namespace ddprun
