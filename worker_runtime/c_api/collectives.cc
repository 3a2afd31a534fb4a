#include "worker_runtime/process_group/collectives.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_runtime/c_api/ddprun_worker.h"
#include "worker_runtime/c_api/worker_handle.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun::c_api {
namespace {

absl::StatusOr<at::ScalarType> DtypeOf(int dtype) {
  switch (dtype) {
    case DDPRUN_FLOAT32: return at::kFloat;
    case DDPRUN_FLOAT64: return at::kDouble;
    case DDPRUN_FLOAT16: return at::kHalf;
    case DDPRUN_BFLOAT16: return at::kBFloat16;
    case DDPRUN_INT8: return at::kChar;
    case DDPRUN_UINT8: return at::kByte;
    case DDPRUN_INT32: return at::kInt;
    case DDPRUN_INT64: return at::kLong;
    default: break;
  }
  return absl::InvalidArgumentError(absl::StrCat("dtype=", dtype, ": must be a ddprun_dtype, from ", DDPRUN_FLOAT32,
                                                 " (DDPRUN_FLOAT32) to ", DDPRUN_INT64, " (DDPRUN_INT64)"));
}

absl::StatusOr<ReduceOp> OpOf(int op, int dtype) {
  switch (op) {
    case DDPRUN_SUM: return ReduceOp::kSum;
    case DDPRUN_MIN: return ReduceOp::kMin;
    case DDPRUN_MAX: return ReduceOp::kMax;
    case DDPRUN_PRODUCT: return ReduceOp::kProduct;
    case DDPRUN_AVERAGE:
      if (dtype <= DDPRUN_BFLOAT16) return ReduceOp::kAverage;
      return absl::InvalidArgumentError(
          absl::StrCat("op=", op, " (DDPRUN_AVERAGE): requires a floating-point dtype, not ", dtype));
    default: break;
  }
  return absl::InvalidArgumentError(absl::StrCat("op=", op, ": must be a ddprun_op, from ", DDPRUN_SUM,
                                                 " (DDPRUN_SUM) to ", DDPRUN_PRODUCT, " (DDPRUN_PRODUCT)"));
}

// A tensor of `times` * `count` elements in the caller's memory.
absl::StatusOr<at::Tensor> Memory(const char* name, const void* data, int64_t count, int dtype, int times = 1) {
  DDPRUN_ASSIGN_OR_RETURN(const at::ScalarType type, DtypeOf(dtype));
  const int64_t element = static_cast<int64_t>(c10::elementSize(type));
  if (count < 0 || count > std::numeric_limits<int64_t>::max() / element / times) {
    return absl::InvalidArgumentError(absl::StrCat("count=", count, ": must be from 0 to the size of the memory"));
  }
  if (count == 0) return at::empty({0}, type);
  if (data == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, " is NULL, with count=", count));
  // Collectives do not write to their inputs.
  return at::from_blob(const_cast<void*>(data), {times * count}, at::TensorOptions(type));
}

absl::Status AllReduceArrays(const ddprun_worker* worker, void* const* data, const int64_t* counts, int32_t arrays,
                             int dtype, int op) {
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group, Group(worker));
  if (arrays < 0 || (arrays > 0 && (data == nullptr || counts == nullptr))) {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays=", arrays, ": must not be negative, and data and counts must not be NULL"));
  }
  std::vector<at::Tensor> tensors;
  for (int32_t i = 0; i < arrays; ++i) {
    DDPRUN_ASSIGN_OR_RETURN(at::Tensor tensor,
                            Memory(absl::StrCat("data[", i, "]").c_str(), data[i], counts[i], dtype));
    tensors.push_back(std::move(tensor));
  }
  DDPRUN_ASSIGN_OR_RETURN(const ReduceOp reduce, OpOf(op, dtype));
  if (tensors.empty()) return absl::OkStatus();
  const at::Tensor all = at::cat(tensors);
  if (all.numel() == 0) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(group->AllReduce(all, reduce));
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(all.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ddprun::c_api

using ddprun::ProcessGroup;
using ddprun::ReduceOp;
using ddprun::c_api::Call;
using ddprun::c_api::Group;
using ddprun::c_api::Memory;
using ddprun::c_api::OpOf;

int ddprun_barrier(ddprun_worker* worker) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group, Group(worker));
    return group->Barrier();
  });
}

int ddprun_all_reduce(ddprun_worker* worker, void* data, int64_t count, int dtype, int op) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group, Group(worker));
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor tensor, Memory("data", data, count, dtype));
    DDPRUN_ASSIGN_OR_RETURN(const ReduceOp reduce, OpOf(op, dtype));
    return count == 0 ? absl::OkStatus() : group->AllReduce(tensor, reduce);
  });
}

int ddprun_all_reduce_arrays(ddprun_worker* worker, void* const* data, const int64_t* counts, int32_t arrays, int dtype,
                             int op) {
  return Call([&] { return ddprun::c_api::AllReduceArrays(worker, data, counts, arrays, dtype, op); });
}

int ddprun_broadcast(ddprun_worker* worker, void* data, int64_t count, int dtype, int root) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group, Group(worker));
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor tensor, Memory("data", data, count, dtype));
    if (root < 0 || root >= group->size()) {
      return absl::InvalidArgumentError(absl::StrCat("root=", root, ": must be from 0 to ", group->size() - 1));
    }
    return count == 0 ? absl::OkStatus() : group->Broadcast(tensor, root);
  });
}

int ddprun_all_gather(ddprun_worker* worker, const void* input, void* output, int64_t count, int dtype) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group, Group(worker));
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor in, Memory("input", input, count, dtype));
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor out, Memory("output", output, count, dtype, group->size()));
    return count == 0 ? absl::OkStatus() : AllGatherIntoTensor(*group, out, in);
  });
}

int ddprun_reduce_scatter(ddprun_worker* worker, const void* input, void* output, int64_t count, int dtype, int op) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ProcessGroup> group, Group(worker));
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor in, Memory("input", input, count, dtype, group->size()));
    DDPRUN_ASSIGN_OR_RETURN(const at::Tensor out, Memory("output", output, count, dtype));
    DDPRUN_ASSIGN_OR_RETURN(const ReduceOp reduce, OpOf(op, dtype));
    return count == 0 ? absl::OkStatus() : ReduceScatterTensor(*group, out, in, reduce);
  });
}
