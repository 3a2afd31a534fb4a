#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_C10D_OPERATIONS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_C10D_OPERATIONS_H_

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace ddprun {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

}  // namespace ddprun

// Since 2.14, LibTorch calls these operations of a backend by new names, and the old ones forward to them.
#ifndef C10D_BACKEND_FORWARDING_GUARD
#define all_gather_single _allgather_base
#define all_gather_single_coalesced allgather_into_tensor_coalesced
#define reduce_scatter_single _reduce_scatter_base
#define reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced
#define all_to_all_single alltoall_base
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
  FORWARD(Collective, all_gather_single, \
          (at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options), (output, input, options)) \
  FORWARD(Collective, all_gather_single_coalesced, \
          (Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, gather, \
          (TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, scatter, \
          (Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, reduce_scatter, \
          (Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options), \
          (outputs, inputs, options)) \
  FORWARD(Collective, reduce_scatter_single, \
          (at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options), \
          (output, input, options)) \
  FORWARD(Collective, reduce_scatter_single_coalesced, \
          (Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, alltoall, \
          (Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options), (outputs, inputs, options)) \
  FORWARD(Collective, all_to_all_single, \
          (at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts, \
           std::vector<int64_t>& input_counts, const c10d::AllToAllOptions& options), \
          (output, input, output_counts, input_counts, options)) \
  FORWARD(Collective, barrier, (const c10d::BarrierOptions& options), (options)) \
  FORWARD(Message, send, (Tensors& tensors, int to, int tag), (tensors, to, tag)) \
  FORWARD(Message, recv, (Tensors& tensors, int from, int tag), (tensors, from, tag)) \
  FORWARD(Message, recvAnysource, (Tensors& tensors, int tag), (tensors, tag))
// clang-format on

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_C10D_OPERATIONS_H_
