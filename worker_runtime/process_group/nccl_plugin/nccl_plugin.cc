#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <stdlib.h>

#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "worker_contract/environment.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"

namespace ddprun {
namespace {

// Errors of NCCL are to reach the caller, who aborts the group and may make another in the same process: LibTorch's
// watchdog aborts the communicator and leaves the process alone (see worker_contract/environment.h), ProcessGroup finds
// the error. What the user has set stays.
void SetRecoveryDefaults(std::chrono::milliseconds timeout) {
  static std::once_flag once;
  std::call_once(once, [timeout] {
    const char* const policy = NcclErrorHandlingToSet(getenv(worker_contract::kNcclAsyncErrorHandling));
    if (policy != nullptr) setenv(worker_contract::kNcclAsyncErrorHandling, policy, /*overwrite=*/1);
    setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);    // a second watchdog, which ends the process regardless
    setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 0);  // in the watchdog's thread, where nobody can catch them
    setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
    // For the creation of a communicator, whose ranks may never come. LibTorch has one such limit for the process.
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(timeout).count();
    setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", std::to_string(seconds).c_str(), 0);
  });
}

class Plugin : public NcclPlugin {
 public:
  int DeviceCount() override { return c10::cuda::device_count_ensure_non_zero(); }

  void UseDevice(c10::Device device) override { c10::cuda::set_device(device.index()); }

  c10::intrusive_ptr<c10d::Backend> Create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           c10::Device device, std::chrono::milliseconds timeout) override {
    const int devices = DeviceCount();
    TORCH_CHECK_VALUE(device.is_cuda() && device.index() >= 0 && device.index() < devices, "no device ", device,
                      ": this process sees ", devices, " GPU(s)");
    SetRecoveryDefaults(timeout);
    UseDevice(device);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
#ifdef NCCL_HAS_COMM_NONBLOCKING
    // A blocking communicator's creation has no time limit and can't be aborted.
    options->config.blocking = 0;
#endif
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  }
};

}  // namespace
}  // namespace ddprun

extern "C" __attribute__((visibility("default"))) const ddprun::NcclPluginEntry* ddprun_nccl_plugin() {
  static ddprun::Plugin plugin;
  static const ddprun::NcclPluginEntry entry = {DDPRUN_NCCL_PLUGIN_BUILD, &plugin};
  return &entry;
}
