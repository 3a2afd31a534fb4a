#include "worker_runtime/process_group/choose_device.h"

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/nccl_loader.h"

namespace ddprun {
namespace {

absl::StatusOr<c10::Device> Gpu(int index, bool is_local_rank) {
  absl::StatusOr<NcclPlugin*> plugin = LoadNcclPlugin();
  if (!plugin.ok()) return plugin.status();
  int count = 0;
  absl::Status status = TorchTry("", [&] {
    count = (*plugin)->DeviceCount();
    return absl::OkStatus();
  });
  if (!status.ok()) return absl::FailedPreconditionError(absl::StrCat("no usable GPU: ", status.message()));
  if (status = CheckCudaWasLoadedInTime(); !status.ok()) return status;
  if (index >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no device cuda:", index, is_local_rank ? " (the GPU of this local rank)" : "", ": this process sees ",
        Counted(count, "GPU"), "; start at most that many workers per node, or use cpu"));
  }
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  status = TorchTry("", [&] {
    (*plugin)->UseDevice(device);
    return absl::OkStatus();
  });
  if (!status.ok())
    return absl::FailedPreconditionError(absl::StrCat(device.str(), " can't be used: ", status.message()));
  return device;
}

}  // namespace

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
