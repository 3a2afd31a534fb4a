#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "worker_runtime/process_group/c10d_operations.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"

namespace ddprun {
namespace {

// A ProcessGroupNCCL whose abort does not hit a collective that another thread is launching.
//
// With a non-blocking communicator, NCCL launches a collective on a thread of its own, and LibTorch polls the
// communicator until the launch is done. If the communicator is aborted meanwhile, its handle is gone, and LibTorch
// polls until TORCH_NCCL_NONBLOCKING_TIMEOUT (NCCLUtils.hpp, C10D_NCCL_CHECK_TIMEOUT). So abort waits until no
// collective is being launched, but not longer than kLaunchWait: a launch that connects to a rank that is gone may not
// return before the abort.
//
// Threads: those of ProcessGroupNCCL; abort may be called from any thread.
class NcclBackend : public c10d::ProcessGroupNCCL {
 public:
  static constexpr std::chrono::seconds kLaunchWait = std::chrono::seconds(1);

  using ProcessGroupNCCL::ProcessGroupNCCL;

  void abort() override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      aborted_ = true;
      changed_.wait_for(lock, kLaunchWait, [this] { return launching_ == 0; });
    }
    ProcessGroupNCCL::abort();
  }

#define DDPRUN_FORWARD(kind, name, parameters, arguments)   \
  c10::intrusive_ptr<c10d::Work> name parameters override { \
    const Launch launch(*this);                             \
    return ProcessGroupNCCL::name arguments;                \
  }
  DDPRUN_FOR_EACH_C10D_OPERATION(DDPRUN_FORWARD)
#undef DDPRUN_FORWARD

 private:
  // A collective that is being launched. Collectives may call others.
  class Launch {
   public:
    explicit Launch(NcclBackend& backend) : backend_(backend) {
      const std::lock_guard<std::mutex> lock(backend_.mutex_);
      TORCH_CHECK_WITH(DistBackendError, !backend_.aborted_, "NCCL: the group was aborted");
      ++backend_.launching_;
    }
    ~Launch() {
      const std::lock_guard<std::mutex> lock(backend_.mutex_);
      if (--backend_.launching_ == 0) backend_.changed_.notify_all();
    }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    NcclBackend& backend_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  int launching_ = 0;
  bool aborted_ = false;
};

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
    static std::once_flag once;  // programs without RunWorker, which calls it before there are threads
    std::call_once(once, [timeout] {
      SetNcclDefaults();
      SetNcclLimit(timeout, /*elastic=*/false);
    });
    UseDevice(device);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    // Creation of a blocking communicator has no time limit and can't be aborted.
    options->config.blocking = 0;
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
