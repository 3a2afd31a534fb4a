#include "worker_runtime/extras/optim/zero_redundancy_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/ddp/model_agreement.h"
#include "worker_runtime/ddp/zero_gradients.h"
#include "worker_runtime/extras/optim/parameter_groups.h"

namespace ddprun {
namespace {

using torch::optim::OptimizerParamGroup;

// Parameters below this size are sent together, because each message has a latency; larger ones are sent from their own
// memory, because copying takes longer.
constexpr size_t kSmallBytes = 256 * 1024;
constexpr size_t kChunkBytes = 1024 * 1024;
// Limits the buffers in flight, which would otherwise undo the saving of memory.
constexpr size_t kMaxChunksInFlight = 16;

void CheckSameOnAllRanks(ProcessGroup& group, const std::vector<OptimizerParamGroup>& groups) {
  ModelDescription description;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t p = 0; p < groups[g].params().size(); ++p) {
      const at::Tensor& parameter = groups[g].params()[p];
      description.entries.push_back({.name = absl::StrCat("param_groups[", g, "].params[", p, "]"),
                                     .shape = parameter.sizes().vec(),
                                     .dtype = c10::toString(parameter.scalar_type())});
    }
  }
  ThrowIfError(CheckAllRanksAgree(description, group));
}

// A broadcast in flight.
struct Sending {
  Sending(const std::vector<at::Tensor>& parameters, int owner, c10d::ProcessGroup& group, bool is_owner)
      : parameters(parameters), receives(!is_owner) {
    in_place = parameters.size() == 1 && parameters.front().is_contiguous();
    if (in_place) {
      flat = parameters.front().detach();
    } else if (is_owner) {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& parameter : parameters) parts.push_back(parameter.detach().reshape(-1));
      flat = at::cat(parts);
    } else {
      int64_t elements = 0;
      for (const at::Tensor& parameter : parameters) elements += parameter.numel();
      flat = at::empty({elements}, parameters.front().options().requires_grad(false));
    }
    std::vector<at::Tensor> tensors = {flat};
    c10d::BroadcastOptions options;
    options.rootRank = owner;
    work = group.broadcast(tensors, options);
  }

  void Finish() {
    work->wait();
    if (in_place || !receives) return;
    int64_t offset = 0;
    for (at::Tensor parameter : parameters) {
      parameter.copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
  }

  const std::vector<at::Tensor>& parameters;
  const bool receives;
  bool in_place = false;
  at::Tensor flat;
  c10::intrusive_ptr<c10d::Work> work;
};

}  // namespace

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                                                 const std::vector<OptimizerParamGroup>& groups,
                                                 const Factory& make_optimizer)
    : Optimizer(std::vector<OptimizerParamGroup>(), nullptr), group_(std::move(group)), elements_(group_->size()) {
  CheckEachOnce("ZeroRedundancyOptimizer", groups);
  CheckSameOnAllRanks(*group_, groups);
  std::vector<OptimizerParamGroup> own;
  for (const OptimizerParamGroup& each : groups) own.push_back(AssignOwners(each));
  local_ = make_optimizer(own);
  TORCH_CHECK(local_ != nullptr && local_->param_groups().size() == groups.size(),
              "ZeroRedundancyOptimizer: the factory must return an optimizer with the ", groups.size(),
              " parameter groups that it is given");
  defaults_ = local_->defaults().clone();
  for (size_t g = 0; g < groups.size(); ++g) {
    param_groups_.emplace_back(groups[g].params(), local_->param_groups()[g].options().clone());
  }
  PlanChunks();
}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                                                 std::vector<at::Tensor> parameters, const Factory& make_optimizer)
    : ZeroRedundancyOptimizer(std::move(group), {OptimizerParamGroup(std::move(parameters))}, make_optimizer) {}

// Same as _partition_parameters of torch/distributed/optim/zero_redundancy_optimizer.py.
OptimizerParamGroup ZeroRedundancyOptimizer::AssignOwners(const OptimizerParamGroup& group) {
  std::vector<at::Tensor> largest_first = group.params();
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [](const at::Tensor& a, const at::Tensor& b) { return a.numel() > b.numel(); });
  std::vector<at::Tensor> own;
  for (const at::Tensor& parameter : largest_first) {
    const auto least = std::min_element(elements_.begin(), elements_.end());
    const int owner = static_cast<int>(least - elements_.begin());
    *least += parameter.numel();
    owners_[parameter.unsafeGetTensorImpl()] = owner;
    if (owner == group_->rank()) own.push_back(parameter);
  }
  if (!group.has_options()) return OptimizerParamGroup(std::move(own));
  return OptimizerParamGroup(std::move(own), group.options().clone());
}

void ZeroRedundancyOptimizer::PlanChunks() {
  chunks_.clear();
  if (group_->size() == 1) return;
  std::vector<std::vector<Chunk>> of_owner(group_->size());
  for (const OptimizerParamGroup& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      const int owner = OwnerOf(parameter);
      const size_t bytes = parameter.nbytes();
      const auto fits = [&parameter, bytes](const Chunk& chunk) {
        const at::Tensor& first = chunk.parameters.front();
        return first.dtype() == parameter.dtype() && first.device() == parameter.device() &&
               std::max(first.nbytes(), bytes) < kSmallBytes && chunk.bytes + bytes <= kChunkBytes;
      };
      auto chunk = std::find_if(of_owner[owner].begin(), of_owner[owner].end(), fits);
      if (chunk == of_owner[owner].end()) chunk = of_owner[owner].insert(chunk, Chunk{.owner = owner});
      chunk->parameters.push_back(parameter);
      chunk->bytes += bytes;
    }
  }
  // Alternates between owners, so that all ranks send at the same time.
  for (size_t i = 0, left = 1; left > 0; ++i) {
    left = 0;
    for (std::vector<Chunk>& chunks : of_owner) {
      if (i >= chunks.size()) continue;
      chunks_.push_back(std::move(chunks[i]));
      ++left;
    }
  }
}

at::Tensor ZeroRedundancyOptimizer::step(LossClosure closure) {
  TORCH_CHECK(local_->param_groups().size() == param_groups_.size(),
              "ZeroRedundancyOptimizer: parameter groups were added through a pointer to the base class, whose "
              "add_param_group is not virtual");
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    local_->param_groups()[g].set_options(param_groups_[g].options().clone());
  }
  at::Tensor loss;
  {
    // The state is kept in this object, where schedulers, checkpoints and others find it.
    std::swap(state_, local_->state());
    const auto take_back = absl::MakeCleanup([this] { std::swap(state_, local_->state()); });
    loss = local_->step(std::move(closure));
  }
  SendParameters();
  return loss;
}

void ZeroRedundancyOptimizer::SendParameters() {
  const at::NoGradGuard no_grad;
  std::deque<Sending> sending;
  for (const Chunk& chunk : chunks_) {
    if (sending.size() == kMaxChunksInFlight) {
      sending.front().Finish();
      sending.pop_front();
    }
    sending.emplace_back(chunk.parameters, chunk.owner, *group_->c10d(), chunk.owner == group_->rank());
  }
  for (Sending& each : sending) each.Finish();
}

void ZeroRedundancyOptimizer::zero_grad(bool set_to_none) {
  for (OptimizerParamGroup& group : param_groups_) ZeroGradients(group.params(), set_to_none);
}

void ZeroRedundancyOptimizer::add_param_group(const OptimizerParamGroup& group) {
  std::vector<OptimizerParamGroup> groups = param_groups_;
  groups.push_back(group);
  CheckEachOnce("ZeroRedundancyOptimizer", groups);
  local_->add_param_group(AssignOwners(group));
  param_groups_.emplace_back(group.params(), local_->param_groups().back().options().clone());
  PlanChunks();
}

int ZeroRedundancyOptimizer::OwnerOf(const at::Tensor& parameter) const {
  const auto owner = owners_.find(parameter.unsafeGetTensorImpl());
  TORCH_CHECK(owner != owners_.end(), "not a parameter of this ZeroRedundancyOptimizer");
  return owner->second;
}

}  // namespace ddprun
