#include "worker_runtime/worker.h"

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker_runtime/base/last_words.h"
#include "worker_runtime/base/launcher_link.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/ddp/distributed_model.h"
#include "worker_runtime/elastic/core/shared_decisions.h"
#include "worker_runtime/elastic/elastic_rounds.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {
namespace {

using worker_contract::LinkReForm;

// Sent by a rank that holds no state.
constexpr int64_t kNothing = -1;

// AwaitDevices polls: a wait inside CUDA would not end when a collective hangs on the device.
constexpr std::chrono::microseconds kPollInterval = std::chrono::microseconds(20);
constexpr absl::Duration kHealthCheckInterval = absl::Milliseconds(2);

}  // namespace

Worker::Worker(WorkerEnv env, WorkerOptions options, c10::Device device)
    : env_(std::move(env)), options_(std::move(options)), device_(device) {}

// RunWorker has shut down or aborted the group.
Worker::~Worker() {
  if (rounds_ != nullptr) rounds_->EndGroup();
}

const std::shared_ptr<ProcessGroup>& Worker::group() const {
  TORCH_CHECK_VALUE(group_ != nullptr, "rank ", env_.rank,
                    " has no process group yet: use it in the functions that Training calls, or call InitProcessGroup "
                    "in a program without Training");
  return group_;
}

absl::Status Worker::AnnounceRounds() {
  if (group_ != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", env_.rank,
                     ": Training (or a loop with NextRendezvous) makes the process groups itself: remove the call of "
                     "InitProcessGroup before it"));
  }
  auto rounds = std::make_unique<ElasticRounds>(env_.round);
  LauncherLink* const link = LauncherLink::OfElasticProcess(rounds->listener());
  if (link == nullptr && LauncherLink::OfProcess().connected()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", env_.rank, ": another Worker of this process has called NextRendezvous (or Training::Run)"));
  }
  rounds->set_link(link);
  rounds_ = rounds.release();  // the link's thread uses it until the process ends
  return absl::OkStatus();
}

absl::Status Worker::NextRendezvous(TrainingState& state, DistributedModel& ddp) {
  if (rounds_ == nullptr) return NonRestartable(AnnounceRounds());
  if (failure_.empty()) failure_ = "its group was shut down during training";
  const std::string reason = rounds_->suspended() ? rounds_->suspend_reason() : failure_;
  recovery_ = {};
  devices_awaited_ = false;  // the next Commit takes other gradients than those awaited before an error
  ddp.Disconnect();
  LeaveGroup(absl::StrCat("this rank leaves the round: ", reason));
  if (committed_.has_value()) {
    if (const absl::Status status = state.Rollback(); !status.ok()) {
      std::cerr << absl::StrCat("rank ", env_.rank, ": can't continue from step ", committed_->step,
                                ", using another rank's state instead: ", status.message(), "\n");
      committed_ = std::nullopt;
      state_lost_ = true;
    }
  }
  recovery_.rolled_back = SteadyNow();
  DDPRUN_ASSIGN_OR_RETURN(const LinkReForm round, rounds_->AwaitNextRound(committed_step(), failure_));
  if (const int dropped = DropHeldLog(); dropped > 0) {
    std::cerr << absl::StrCat("rank ", env_.rank, ": LibTorch logged ", Counted(dropped, "error"),
                              " at the end of round ", env_.round, "; TORCH_CPP_LOG_LEVEL=ERROR shows them\n");
  }
  static_cast<worker_contract::WorkerAssignment&>(env_) = round;
  failure_.clear();
  recovery_.round = round.round;
  recovery_.suspended = rounds_->suspended_at();
  recovery_.re_formed = rounds_->re_formed_at();
  return absl::OkStatus();
}

void Worker::LeaveGroup(const std::string& reason) {
  rounds_->EndGroup();
  if (group_ == nullptr) return;
  // In the background, so as not to wait for an unreachable store.
  rounds_->InBackground([group = std::exchange(group_, nullptr), reason] { group->Abort(reason); });
}

absl::Status Worker::InitProcessGroup() {
  if (HostHasGpu()) SetNcclLimit(absl::ToChronoMilliseconds(options_.timeout), /*elastic=*/rounds_ != nullptr);
  ProcessGroupOptions options = {
      .backend = options_.backend, .device = device_, .timeout = options_.timeout, .interface = options_.interface};
  if (rounds_ != nullptr) return InitRoundsGroup(std::move(options));
  LauncherLink::OfProcess();  // connects now, so that the launcher can announce a stop to this worker
  DDPRUN_ASSIGN_OR_RETURN(group_, ProcessGroup::Create(env_, std::move(options)));
  return absl::OkStatus();
}

absl::Status Worker::InitRoundsGroup(ProcessGroupOptions options) {
  const std::stop_source creation;
  const absl::Status ended =
      absl::CancelledError(absl::StrCat("rank ", env_.rank, ": the round ended while its process group was created"));
  if (!rounds_->BeginGroup(creation)) return ended;
  options.cancel = creation.get_token();
  options.await_failure_reports = !rounds_->linked();
  // Makes the attempt number agree between survivors, which have formed groups before, and newcomers, which have not.
  if (env_.round != 0) options.attempt = env_.round;
  DDPRUN_ASSIGN_OR_RETURN(group_, ProcessGroup::Create(env(), std::move(options)));
  const std::weak_ptr<ProcessGroup> weak = group_;
  const auto abort = [weak](const std::string& reason) {
    if (const std::shared_ptr<ProcessGroup> group = weak.lock(); group != nullptr) group->Abort(reason);
  };
  if (!rounds_->UseGroup(abort)) {
    LeaveGroup(std::string(ended.message()));
    return ended;
  }
  recovery_.group_formed = SteadyNow();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Worker::SyncState(TrainingState& state, DistributedModel& ddp, Resume resume) {
  std::optional<int> source;
  absl::StatusOr<CommittedPoint> point = absl::InternalError("");
  DDPRUN_RETURN_IF_ERROR(group_->Try("synchronizing the training state", [&] {
    point = Sync(state, ddp, resume, &source);
    return point.status();
  }));
  DDPRUN_RETURN_IF_ERROR(Commit(state, point->step, {.part = point->part}));
  recovery_.state_synced = SteadyNow();
  recovery_.step = point->step;
  recovery_.first_step = std::nullopt;
  if (recovery_.round != 0) rounds_->SendToLauncher(worker_contract::LinkReFormed{env_.round, point->step, source});
  return point->step;
}

absl::StatusOr<CommittedPoint> Worker::Sync(TrainingState& state, DistributedModel& ddp, Resume resume,
                                            std::optional<int>* source) {
  // Now, when all ranks have just met: a rank that dies meanwhile does not delay the others.
  if (state.IsOn(group_->nccl_device())) DDPRUN_RETURN_IF_ERROR(group_->ConnectNccl());
  const CommittedPoint held = committed_.value_or(CommittedPoint{kNothing});
  const at::Tensor mine = at::tensor({held.step, int64_t{state_lost_}, held.part}, at::kLong);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all, group_->AllGather(mine.to(group_->device())));
  std::vector<std::optional<CommittedPoint>> points;
  bool lost = false;
  for (const at::Tensor& tensor : all) {
    const at::Tensor values = tensor.cpu();
    const auto* const value = values.const_data_ptr<int64_t>();
    points.push_back(value[0] == kNothing ? std::nullopt : std::optional(CommittedPoint{value[0], value[2]}));
    lost |= value[1] != 0;
  }
  *source = ChooseStateSource(points);
  if (!source->has_value()) {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<int64_t> resumed, resume());
    if (!resumed.has_value() && lost) {
      return absl::DataLossError(
          "no rank holds a training state, and there is no checkpoint: restart the training in new processes");
    }
    DDPRUN_RETURN_IF_ERROR(ddp.Connect(group_, std::nullopt, /*equal=*/false));
    return CommittedPoint{resumed.value_or(0)};
  }
  const std::optional<BucketLayout> own_layout = ddp.bucket_layout();
  DDPRUN_ASSIGN_OR_RETURN(const std::string layout_text,
                          group_->BroadcastText(own_layout ? BucketLayoutText(*own_layout) : "", **source));
  const CommittedPoint farthest = *points[**source];
  const bool behind = committed_ != farthest;
  if (behind) {
    state_lost_ = true;
    committed_ = std::nullopt;
  }
  // If all ranks hold the state, comparing checksums below is sufficient.
  const bool all_hold_it =
      std::all_of(points.begin(), points.end(), [&](const auto& point) { return point == farthest; });
  if (!all_hold_it) DDPRUN_RETURN_IF_ERROR(state.Broadcast(*group(), **source, /*take=*/behind));
  DDPRUN_RETURN_IF_ERROR(state.CheckSameOnAllRanks(*group_));
  std::optional<BucketLayout> layout;
  if (!layout_text.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(layout, FromBucketLayoutText(layout_text));
  }
  DDPRUN_RETURN_IF_ERROR(ddp.Connect(group_, layout, /*equal=*/true));
  return farthest;
}

absl::Status Worker::AwaitDevices(const TrainingState& state) {
  std::vector<c10::Event> events;
  if (!device_.is_cuda()) return absl::OkStatus();
  for (const c10::Device device : state.Accelerators()) {
    events.emplace_back(device.type());
    events.back().record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  SteadyTime next_check = SteadyNow() + kHealthCheckInterval;
  for (const c10::Event& event : events) {
    while (!event.query()) {
      std::this_thread::sleep_for(kPollInterval);
      if (SteadyNow() < next_check) continue;
      DDPRUN_RETURN_IF_ERROR(group_->Health());
      next_check = SteadyNow() + kHealthCheckInterval;
    }
  }
  DDPRUN_RETURN_IF_ERROR(group_->Health());
  devices_awaited_ = true;
  return absl::OkStatus();
}

absl::Status Worker::Commit(TrainingState& state, int64_t step, const CommitOptions& options) {
  if (!devices_awaited_) DDPRUN_RETURN_IF_ERROR(AwaitDevices(state));
  devices_awaited_ = false;
  state.Commit(options.gradients ? TrainingState::Scope::kStep : TrainingState::Scope::kStepFromZeroGradients);
  committed_ = CommittedPoint{step, options.part};
  state_lost_ = false;
  if (options.part == 0 && recovery_.state_synced.has_value() && !recovery_.first_step.has_value()) {
    recovery_.first_step = SteadyNow();
  }
  return absl::OkStatus();
}

bool Worker::Recoverable(const absl::Status& status) {
  if (status.ok() || rounds_ == nullptr || !rounds_->linked() || IsNonRestartable(status)) return false;
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable: break;
    default: return false;
  }
  // An error with one of these codes may also be the trainer's own: the group is healthy then.
  if (!rounds_->suspended() && group_ != nullptr && group_->Health().ok()) return false;
  failure_ = std::string(status.message());
  return true;
}

bool Worker::suspended() const { return rounds_ != nullptr && rounds_->suspended(); }

bool Worker::TakeCheckpointRequest() { return rounds_ != nullptr && rounds_->TakeCheckpointRequest(); }

void Worker::ReportCheckpoint(int64_t step) {
  if (rounds_ != nullptr) rounds_->SendToLauncher(worker_contract::LinkCheckpointed{step});
}

}  // namespace ddprun
