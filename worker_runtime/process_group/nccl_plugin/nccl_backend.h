#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_BACKEND_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_BACKEND_H_

#include <c10/util/Exception.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <vector>

// Since 2.14, LibTorch calls these operations of a backend by new names, and the old ones forward to them.
#ifndef C10D_BACKEND_FORWARDING_GUARD
#define all_gather_single _allgather_base
#define all_gather_single_coalesced allgather_into_tensor_coalesced
#define reduce_scatter_single _reduce_scatter_base
#define reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced
#define all_to_all_single alltoall_base
#endif

namespace ddprun {

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
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  void abort() override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      aborted_ = true;
      changed_.wait_for(lock, kLaunchWait, [this] { return launching_ == 0; });
    }
    ProcessGroupNCCL::abort();
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::broadcast(tensors, options);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::allreduce(tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::allreduce_coalesced(tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::reduce(tensors, options);
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::allgather(outputs, inputs, options);
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::all_gather_single(output, input, options);
  }
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::all_gather_single_coalesced(outputs, inputs, options);
  }
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::reduce_scatter(outputs, inputs, options);
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::reduce_scatter_single(output, input, options);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::reduce_scatter_single_coalesced(outputs, inputs, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::barrier(options);
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                            std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::all_to_all_single(output, input, output_sizes, input_sizes, options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::alltoall(outputs, inputs, options);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::send(tensors, to, tag);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::recv(tensors, from, tag);
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::gather(outputs, inputs, options);
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::scatter(outputs, inputs, options);
  }

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

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_BACKEND_H_
