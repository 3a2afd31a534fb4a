#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_BACKEND_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_NCCL_PLUGIN_NCCL_BACKEND_H_

#include <c10/util/Exception.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <vector>

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
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::_allgather_base(output, input, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::reduce_scatter(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::_reduce_scatter_base(output, input, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::barrier(options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    const Launch launch(*this);
    return ProcessGroupNCCL::alltoall_base(output, input, output_sizes, input_sizes, options);
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
