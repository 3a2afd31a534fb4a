#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_REDUCE_OP_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_REDUCE_OP_H_

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// kAverage becomes AVG, which Gloo does not have. Internal to this directory.
inline c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage: return c10d::ReduceOp::AVG;
    case ReduceOp::kMin: return c10d::ReduceOp::MIN;
    case ReduceOp::kMax: return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct: return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_REDUCE_OP_H_
