#include "worker_runtime/ddp/join.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/ranks_text.h"
#include "worker_runtime/ddp/ddp_state.h"

// Every function here mirrors a place in Python's _DDPJoinHook and Join. The two sides of a collective are adjacent:
// the code of a training rank, and the code with which a finished rank shadows it.
namespace ddprun {
namespace {

c10::intrusive_ptr<c10d::Work> StartAllReduce(DdpState& state, at::Tensor tensor,
                                              c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  return state.group->c10d()->allreduce(tensors, options);
}

at::Tensor Flag(const DdpState& state, double value) {
  return at::full({1}, value, at::TensorOptions(at::kFloat).device(state.device()));
}

// Returns the largest rank for which `candidate` is true.
int CommonRank(DdpState& state, bool candidate) {
  at::Tensor rank =
      at::full({1}, candidate ? state.group->rank() : -1, at::TensorOptions(at::kLong).device(state.device()));
  StartAllReduce(state, rank, c10d::ReduceOp::MAX)->wait();
  return static_cast<int>(rank.item<int64_t>());
}

// Announces whether this rank is done, and returns the ranks that are.
std::vector<int> ExchangeDone(DdpState& state, bool done) {
  at::Tensor flags = at::zeros({state.group->size()}, at::TensorOptions(at::kFloat).device(state.device()));
  if (done) flags[state.group->rank()].fill_(1);
  StartAllReduce(state, flags)->wait();
  const at::Tensor on_cpu = flags.cpu();
  std::vector<int> ranks;
  for (int rank = 0; rank < state.group->size(); ++rank) {
    if (on_cpu.data_ptr<float>()[rank] != 0) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status EarlyTermination(const std::vector<int>& ranks) {
  return absl::OutOfRangeError(
      absl::StrCat(RanksText(ranks),
                   " ran out of inputs before the other ranks, and throw_on_early_termination is "
                   "set; give all ranks the same number of inputs"));
}

// Backward pass of a rank that is done: the same collectives in the same order, with zeros.
void ShadowBackward(DdpState& state) {
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reductions;
  for (c10d::GradBucket& bucket : state.reducer->get_grad_buckets(/*return_zero_tensors=*/true)) {
    reductions.push_back(state.reducer->run_comm_hook(bucket));
  }
  for (const auto& reduction : reductions) reduction->waitAndThrow();
  if (state.options.find_unused_parameters) {
    StartAllReduce(state, state.reducer->get_local_used_map_on_device())->wait();
  }
  state.reducer->push_rebuilt_params_for_all_indices();
}

// One iteration of the others, shadowed by a rank that is done.
void ShadowIteration(DdpState& state) {
  state.reducer->rebuild_buckets();
  if (BuffersNeedSync(state)) BroadcastBuffers(state, CommonRank(state, false));
  at::Tensor syncing = Flag(state, 0);
  StartAllReduce(state, syncing)->wait();
  state.require_forward_param_sync = syncing.item<float>() != 0;
  if (state.require_forward_param_sync) ShadowBackward(state);
}

// Runs on a rank whose loop is over, until all ranks are done.
absl::Status Follow(DdpState& state) {
  bool last = true;
  while (true) {
    at::Tensor training = Flag(state, 0);
    StartAllReduce(state, training)->wait();
    if (training.item<float>() == 0) break;
    if (state.joining->options.throw_on_early_termination) return EarlyTermination(ExchangeDone(state, true));
    last = false;
    ShadowIteration(state);
  }
  BroadcastModule(state, CommonRank(state, last));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunJoin(DdpState& state, const JoinOptions& options, absl::FunctionRef<absl::Status()> loop) {
  if (state.joining.has_value()) return absl::FailedPreconditionError("Join is already running; it can't be nested");
  state.joining = DdpState::Joining{.options = options, .early_termination = absl::OkStatus()};
  state.logger->set_uneven_input_join();
  absl::Status status = state.group->Try("training loop", loop);
  if (!state.joining->early_termination.ok()) status = state.joining->early_termination;
  if (status.ok()) status = state.group->Try("join", [&state] { return Follow(state); });
  state.joining.reset();
  return status;
}

void JoinNotifyForward(DdpState& state) {
  const JoinOptions& options = state.joining->options;
  c10::intrusive_ptr<c10d::Work> work = StartAllReduce(state, Flag(state, 1));
  if (options.throw_on_early_termination) {
    const std::vector<int> done = ExchangeDone(state, false);
    if (!done.empty()) {
      state.joining->early_termination = EarlyTermination(done);
      TORCH_CHECK(false, std::string(state.joining->early_termination.message()));
    }
  }
  state.reducer->set_forward_pass_work_handle(std::move(work), options.divide_by_initial_world_size);
}

int JoinRankOfBuffers(DdpState& state) { return CommonRank(state, true); }

void JoinAnnounceGradientSync(DdpState& state) {
  // Only ranks that are done read the sum, so there is no need to wait.
  StartAllReduce(state, Flag(state, state.require_backward_grad_sync ? 1 : 0));
}

}  // namespace ddprun
