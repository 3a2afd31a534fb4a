#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <mutex>

#include "worker_runtime/process_group/nccl_plugin/nccl_backend.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"

namespace ddprun {
namespace {

class Plugin : public NcclPlugin {
 public:
  int DeviceCount() override { return c10::cuda::device_count_ensure_non_zero(); }

  void UseDevice(c10::Device device) override { c10::cuda::set_device(device.index()); }

  std::string DeviceUuid(c10::Device device) override {
    CheckDevice(device);
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
    return {properties.uuid.bytes, sizeof properties.uuid.bytes};
  }

  c10::intrusive_ptr<c10d::Backend> Create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           c10::Device device, std::chrono::milliseconds timeout) override {
    CheckDevice(device);
    static std::once_flag once;  // for programs without RunWorker, which calls it before there are threads
    std::call_once(once, [timeout] {
      SetNcclDefaults();
      SetNcclLimit(timeout, /*elastic=*/false);
    });
    UseDevice(device);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
#ifdef NCCL_HAS_COMM_NONBLOCKING
    // Creation of a blocking communicator has no time limit and can't be aborted.
    options->config.blocking = 0;
#endif
    return c10::make_intrusive<NcclBackend>(store, rank, size, options);
  }

 private:
  void CheckDevice(c10::Device device) {
    const int devices = DeviceCount();
    TORCH_CHECK_VALUE(device.is_cuda() && device.index() >= 0 && device.index() < devices, "no device ", device,
                      ": this process sees ", devices, " GPU(s)");
  }
};

}  // namespace
}  // namespace ddprun

extern "C" __attribute__((visibility("default"))) const ddprun::NcclPluginEntry* ddprun_nccl_plugin() {
  static ddprun::Plugin plugin;
  static const ddprun::NcclPluginEntry entry = {DDPRUN_NCCL_PLUGIN_BUILD, &plugin};
  return &entry;
}
