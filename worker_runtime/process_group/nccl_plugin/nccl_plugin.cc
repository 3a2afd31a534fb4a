#include "worker_runtime/process_group/nccl_plugin/nccl_plugin.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <typeinfo>
#include <utility>

#include "worker_runtime/process_group/c10d_operations.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"

#ifdef DDPRUN_HAS_NCCL2
#include <torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>
#endif

namespace ddprun {
namespace {

constexpr char kAborted[] = "NCCL: the group was aborted";

// A backend of LibTorch over NCCL whose abort does not hit a collective that another thread is launching.
//
// With a non-blocking communicator, NCCL launches a collective on a thread of its own, and LibTorch polls the
// communicator until the launch is done. If the communicator is aborted meanwhile, its handle is gone, and LibTorch
// polls until TORCH_NCCL_NONBLOCKING_TIMEOUT (NCCLUtils.hpp, C10D_NCCL_CHECK_TIMEOUT). So abort waits until no
// collective is being launched, but not longer than kLaunchWait: a launch that connects to a rank that is gone may not
// return before the abort.
//
// Threads: those of `Base`; abort may be called from any thread.
template <typename Base>
class NcclBackend : public Base {
 public:
  static constexpr std::chrono::seconds kLaunchWait = std::chrono::seconds(1);

  using Base::Base;

  void abort() override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      aborted_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, kLaunchWait, [this] { return launching_ == 0; });
    }
    // nccl2's may not run on two threads: both would join its watchdog.
    std::call_once(abort_, [this] { AbortCommunicator(); });
  }

#define DDPRUN_FORWARD(kind, name, parameters, arguments)   \
  c10::intrusive_ptr<c10d::Work> name parameters override { \
    return Begin([&] { return Base::name arguments; });     \
  }
  DDPRUN_FOR_EACH_C10D_OPERATION(DDPRUN_FORWARD)
#undef DDPRUN_FORWARD

 protected:
  // Called before each launch. A wait in it ends when `aborted_` is set.
  virtual void Connect() {}

  virtual void AbortCommunicator() { Base::abort(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;

 private:
  // A collective that is being launched. Collectives may call others.
  class Launch {
   public:
    explicit Launch(NcclBackend& backend) : backend_(backend) {
      const std::lock_guard<std::mutex> lock(backend_.mutex_);
      TORCH_CHECK_WITH(DistBackendError, !backend_.aborted_, kAborted);
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

  template <typename Call>
  c10::intrusive_ptr<c10d::Work> Begin(Call call) {
    const Launch launch(*this);
    try {
      Connect();
      return call();
    } catch (const c10::Error& error) {
      // nccl2's errors of the communicator have no type of their own.
      const bool is_typed = typeid(error) != typeid(c10::Error);
      if (is_typed || this->getError() == c10d::ErrorType::SUCCESS) throw;
      C10_THROW_ERROR(DistBackendError, error.what_without_backtrace());
    } catch (const std::exception& error) {
      C10_THROW_ERROR(DistBackendError, error.what());
    }
  }

  std::once_flag abort_;
  int launching_ = 0;
};

#ifdef DDPRUN_HAS_NCCL2
// nccl2 connects the ranks when it is given a device. Here the first operation does, as in the legacy backend, with
// TORCH_NCCL_NONBLOCKING_TIMEOUT as the limit.
//
// While nccl2 connects, nothing can abort its communicator, and if a rank dies, the others may wait until the limit. So
// a thread of its own connects, which an abort leaves behind; that thread then aborts what it has connected. It polls
// without a pause, so it gets a low priority then.
class Nccl2Backend : public NcclBackend<c10d::nccl2::ProcessGroupNCCL> {
 public:
  Nccl2Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               const c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options>& options, c10::Device device)
      : NcclBackend(store, rank, size, options), device_(device), timeout_(options->timeout) {
    const int limit = c10d::getCvarInt({"TORCH_NCCL_NONBLOCKING_TIMEOUT"}, 0);
    if (limit > 0) setTimeout(std::min<std::chrono::milliseconds>(timeout_, std::chrono::seconds(limit)));
  }

  // c10d::ProcessGroup calls this without a device. nccl2 would take the GPU of the rank's number.
  void setBoundDeviceId(std::optional<at::Device> /*device*/) override {}

  void startCoalescing() override {
    Connect();
    NcclBackend::startCoalescing();
  }

 protected:
  void Connect() override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (state_ == State::kConnected) return;
    TORCH_CHECK_WITH(DistBackendError, !aborted_, kAborted);
    if (state_ == State::kNew) {
      state_ = State::kConnecting;
      auto self = c10::intrusive_ptr<Nccl2Backend>::unsafe_reclaim_from_nonowning(this);
      std::thread([self = std::move(self)] { self->ConnectHere(); }).detach();
    }
    changed_.wait(lock, [this] { return state_ != State::kConnecting || aborted_; });
    if (state_ == State::kNew) std::rethrow_exception(error_);
    TORCH_CHECK_WITH(DistBackendError, !aborted_, kAborted);
  }

  void AbortCommunicator() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (state_ == State::kConnecting) {
        state_ = State::kLeftBehind;
        if (connecting_thread_ > 0) setpriority(PRIO_PROCESS, connecting_thread_, 19);
        return;
      }
    }
    ProcessGroupNCCL::abort();
  }

 private:
  enum class State { kNew, kConnecting, kLeftBehind, kConnected };

  void ConnectHere() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      connecting_thread_ = gettid();
    }
    std::exception_ptr error;
    try {
      c10::cuda::set_device(device_.index());
      NcclBackend::setBoundDeviceId(device_);
      setTimeout(timeout_);
    } catch (...) {
      error = std::current_exception();
    }
    bool left_behind = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      left_behind = state_ == State::kLeftBehind;
      state_ = error == nullptr ? State::kConnected : State::kNew;
      error_ = error;
      connecting_thread_ = 0;
      changed_.notify_all();
    }
    if (left_behind && error == nullptr) ProcessGroupNCCL::abort();
  }

  const c10::Device device_;
  const std::chrono::milliseconds timeout_;
  State state_ = State::kNew;
  pid_t connecting_thread_ = 0;  // 0: none, or it has not begun
  std::exception_ptr error_;
};
#endif

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

  c10::intrusive_ptr<c10d::Backend> Create(NcclEngine engine, const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, c10::Device device, std::chrono::milliseconds timeout) override {
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
    if (engine == NcclEngine::kLegacy) {
      return c10::make_intrusive<NcclBackend<c10d::ProcessGroupNCCL>>(store, rank, size, options);
    }
#ifdef DDPRUN_HAS_NCCL2
    return c10::make_intrusive<Nccl2Backend>(store, rank, size, options, device);
#else
    TORCH_CHECK_VALUE(false, "backend nccl2 needs LibTorch 2.15 or newer, and this is " TORCH_VERSION);
#endif
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
