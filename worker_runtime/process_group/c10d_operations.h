#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_C10D_OPERATIONS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_C10D_OPERATIONS_H_

#include <torch/headeronly/version.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace ddprun {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

}  // namespace ddprun

// All differences between the supported versions of LibTorch stand in this file.

// Defined if LibTorch has c10d::nccl2::ProcessGroupNCCL.
#if defined(USE_C10D_NCCL) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
#define DDPRUN_HAS_NCCL2
#endif

// Since 2.14, LibTorch calls some operations of a backend by new names, and the old ones forward to them.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
#define DDPRUN_C10D_NAME(new_name, old_name) new_name
#else
#define DDPRUN_C10D_NAME(new_name, old_name) old_name
#endif

// The operations of c10d::Backend that communicate, for a backend that wraps another one: FORWARD(kind, name,
// (parameters), (arguments)) for each. `kind` is Collective or Message; all return a c10::intrusive_ptr<c10d::Work>.
// clang-format off
#define DDPRUN_FOR_EACH_C10D_OPERATION(FORWARD) \
  FORWARD(Collective, broadcast, \
          (Tensors& tensors, const c10d::BroadcastOptions& options), (tensors, options)) \
  FORWARD(Collective, allreduce, \
          (Tensors& tensors, const c10d::AllreduceOptions& options), (tensors, options)) \
  FORWARD(Collective, allreduce_sparse, \
          (Tensors& tensors, const c10d::AllreduceOptions& options), (tensors, options)) \
  FORWARD(Collective, allreduce_coalesced, \
          (Tensors& tensors, const c10d::AllreduceCoalescedOptions& options), (tensors, options)) \
  FORWARD(Collective, reduce, \
          (Tensors& tensors, const c10d::ReduceOptions& options), (tensors, options)) \
  FORWARD(Collective, allgather, \
          (TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, allgather_coalesced, \
          (TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, DDPRUN_C10D_NAME(all_gather_single, _allgather_base), \
          (at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options), (output, input, options)) \
  FORWARD(Collective, DDPRUN_C10D_NAME(all_gather_single_coalesced, allgather_into_tensor_coalesced), \
          (Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, gather, \
          (TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, scatter, \
          (Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, reduce_scatter, \
          (Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options), \
          (outputs, inputs, options)) \
  FORWARD(Collective, DDPRUN_C10D_NAME(reduce_scatter_single, _reduce_scatter_base), \
          (at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options), \
          (output, input, options)) \
  FORWARD(Collective, DDPRUN_C10D_NAME(reduce_scatter_single_coalesced, reduce_scatter_tensor_coalesced), \
          (Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, alltoall, \
          (Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, DDPRUN_C10D_NAME(all_to_all_single, alltoall_base), \
          (at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts, \
           std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options), \
          (output, input, output_counts, input_counts, options)) \
  FORWARD(Collective, barrier, (const c10d::BarrierOptions& options), (options)) \
  FORWARD(Message, send, (Tensors& tensors, int to, int tag), (tensors, to, tag)) \
  FORWARD(Message, recv, (Tensors& tensors, int from, int tag), (tensors, from, tag)) \
  FORWARD(Message, recvAnysource, (Tensors& tensors, int tag), (tensors, tag))
// clang-format on

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_C10D_OPERATIONS_H_
