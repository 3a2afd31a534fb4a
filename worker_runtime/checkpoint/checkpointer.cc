#include "worker_runtime/checkpoint/checkpointer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "base/version.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/checkpoint/checkpoint_copies.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/checkpoint/checkpoint_loader.h"
#include "worker_runtime/checkpoint/host_snapshot.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/collectives.h"
#include "worker_runtime/process_group/meeting.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/state_loader.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun {
namespace {

void Warn(const std::string& text) { std::fputs(absl::StrCat("ddprun checkpoint: ", text, "\n").c_str(), stderr); }

absl::Status CheckFinite(int rank, int64_t step, const StateParts& parts) {
  const absl::Status status = parts.CheckFinite();
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("checkpoint of step ", step, " was not saved, earlier ones are kept: rank ", rank,
                                   ": ", status.message()));
}

// Checks a copy that has just left the devices. If one of the collectives before it failed there, it is garbage.
absl::Status CheckCopied(ProcessGroup* group, int64_t step) {
  const absl::Status health = group == nullptr ? absl::OkStatus() : group->Health();
  if (health.ok() || absl::IsFailedPrecondition(health)) return absl::OkStatus();  // after an orderly shutdown
  return absl::UnavailableError(absl::StrCat("checkpoint of step ", step,
                                             " was not saved, earlier ones are kept: the group failed while the state "
                                             "was copied from the GPU: ",
                                             health.message()));
}

// torchrun's default id does not identify a job.
constexpr char kNoId[] = "none";

FileSystem& FilesFor(const CheckpointerOptions& options) {
  if (options.files != nullptr) return *options.files;
  return options.async ? FileSystem::Direct() : FileSystem::Real();
}

}  // namespace

class Checkpointer::Impl {
 public:
  Impl(std::shared_ptr<ProcessGroup> group, TrainingState& state, const CheckpointerOptions& options)
      : group_(std::move(group)), state_(state), options_(options), folder_(options.folder, FilesFor(options)) {}

  ~Impl() {
    CancelCopies();
    WarnOfUnreported();
  }

  absl::Status Make();
  void Own(std::unique_ptr<TrainingState> state) { own_state_ = std::move(state); }

  absl::StatusOr<CheckpointInfo> Resume();
  absl::Status Save(const Progress& progress);
  absl::Status Finish();
  void Rebind(std::shared_ptr<ProcessGroup> group, int64_t launcher_round);
  absl::StatusOr<bool> HasCheckpoint();
  CheckpointStats stats() const;

 private:
  using Write = std::function<absl::Status(CheckpointPart model, CheckpointPart rest)>;
  using Finished = std::function<void(const absl::Status&)>;

  absl::Status CatchExceptions(absl::string_view operation, absl::FunctionRef<absl::Status()> body);
  absl::Status RunCollective(const std::string& call, absl::FunctionRef<absl::Status()> all,
                             absl::FunctionRef<absl::Status(RankMeeting&)> part);
  void AwaitWriter();
  void CancelCopies();
  void WarnOfUnreported();
  absl::Status TakeUnreported(const absl::Status& now);
  absl::Status CheckAndGather(const Progress& progress, at::Tensor* random, StateParts* parts);
  absl::Status Gather(at::Tensor* random);
  bool WritesCopy() const { return std::ranges::count(copy_ranks_, RankIn(group_.get())) > 0; }
  void BeginRun();
  absl::Status SavePart(RankMeeting& meeting, const Progress& progress, const at::Tensor& random, StateParts parts);
  absl::StatusOr<StateParts> WholeParts(const Progress& progress, const at::Tensor& random) const;
  absl::Status SaveParts(int64_t step, StateParts parts, Write write, Finished finished);

  std::shared_ptr<ProcessGroup> group_;       // nullptr: a single process
  std::unique_ptr<TrainingState> own_state_;  // nullptr: the trainer owns the state
  TrainingState& state_;
  const CheckpointerOptions options_;
  CheckpointFolder folder_;

  std::string run_id_;           // from the options or the launcher
  int restart_count_ = 0;        // from the launcher
  CheckpointRound round_;        // this start of the workers
  int64_t run_ = 0;              // 0: unknown before the first Resume or Save
  int64_t highest_run_ = 0;      // largest run in this rank's folder; after the first exchange, in all
  int64_t random_bytes_ = 0;     // largest over all ranks; 0: not exchanged yet
  int former_writer_ = 0;        // a rank that was rank 0 in an earlier round and may still write; 0: none
  CheckpointPlace place_;        // this rank's location; unknown if one copy is enough
  std::vector<int> copy_ranks_;  // the ranks besides rank 0 that write the same checkpoint
  CheckpointStats stats_;        // except last_write
  std::atomic<int64_t> last_write_nanoseconds_{0};

  // Used by the writer while it runs.
  HostSnapshot model_snapshot_;
  HostSnapshot rest_snapshot_;
  std::future<absl::Status> writer_;
  std::atomic<bool> copies_cancelled_{false};

  absl::Status unreported_;  // errors of earlier saves in the background
};

// Converts exceptions of LibTorch to a Status; uses the group, if there is one, as its errors are more informative.
absl::Status Checkpointer::Impl::CatchExceptions(absl::string_view operation, absl::FunctionRef<absl::Status()> body) {
  return group_ != nullptr ? group_->Try(operation, body) : TorchTry(operation, body);
}

absl::Status Checkpointer::Impl::Make() {
  if (options_.copies > 1) {
    DDPRUN_RETURN_IF_ERROR(folder_.Make());
    DDPRUN_ASSIGN_OR_RETURN(place_, PlaceOf(folder_));
  }
  run_id_ = options_.run_id;
  if (const absl::StatusOr<WorkerEnv> env = WorkerEnv::FromEnvironment(); env.ok()) {
    if (run_id_.empty() && env->run_id != kNoId) run_id_ = env->run_id;
    restart_count_ = env->restart_count;
    round_.launcher_round = env->round > 0 ? static_cast<int64_t>(env->round) : env->restart_count;
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, folder_.List());
  if (!ids.empty()) highest_run_ = ids.front().run;
  return absl::OkStatus();
}

absl::StatusOr<CheckpointInfo> Checkpointer::Impl::Resume() {
  CheckpointInfo info;
  CheckpointLoader loader(group_.get(), state_, folder_,
                          {options_.shared_folder, options_.run_id, options_.disk_timeout});
  const absl::Status status = CatchExceptions("load a checkpoint", [&]() -> absl::Status {
    // Now, so that a folder that can't be created is an error before hours of training.
    DDPRUN_RETURN_IF_ERROR(OutcomeOfAll(group_.get(), RankIn(group_.get()) == 0 ? folder_.Make() : absl::OkStatus()));
    absl::StatusOr<CheckpointInfo> loaded = loader.Load();
    if (loaded.ok()) info = *std::move(loaded);
    return loaded.status();
  });
  // The state that was saved is not the one to load it into: a restart changes neither.
  if (absl::IsInvalidArgument(status)) return NonRestartable(status);
  if (!status.ok()) return status;
  highest_run_ = std::max(highest_run_, loader.highest_run());
  const bool found = !info.path.empty();
  if (found) {
    run_ = info.run;
    round_.round = info.round.round + 1;
  }
  const std::string lost =
      found || (restart_count_ == 0 && round_.launcher_round <= 1)
          ? ""
          : absl::StrCat("no rank has a checkpoint in ", folder_.folder(), ", but this is round ",
                         round_.launcher_round, " (restart ", restart_count_,
                         "); if that folder is on each host's own disk, checkpoints are lost with the host of rank 0: "
                         "use a folder that all hosts share, or CheckpointerOptions::copies");
  if (!lost.empty() && options_.require_checkpoint) return NonRestartable(absl::NotFoundError(lost));
  if (RankIn(group_.get()) != 0) return info;
  for (const std::string& skipped : info.skipped) Warn(absl::StrCat("skipped: ", skipped));
  for (const std::string& name : loader.missing()) {
    Warn(absl::StrCat(info.path, " has no \"", name, "\", which keeps its value"));
  }
  if (found && !info.run_id.empty() && !run_id_.empty() && info.run_id != run_id_) {
    Warn(absl::StrCat("continuing step ", info.progress.step, " of ", info.path, ", saved by job ", info.run_id,
                      "; this is job ", run_id_));
  }
  if (!lost.empty()) {
    Warn(absl::StrCat("WARNING: training restarts at step 0 (rank 0 is on ", ThisProcess().host, "): ", lost));
  }
  return info;
}

// Implements a collective call: once all ranks have entered it, runs `all` on all of them, then `part`. The other ranks
// then wait for rank 0 and return its result.
absl::Status Checkpointer::Impl::RunCollective(const std::string& call, absl::FunctionRef<absl::Status()> all,
                                               absl::FunctionRef<absl::Status(RankMeeting&)> part) {
  RankMeeting meeting(group_.get(), call);
  absl::Status status = SizeOf(group_.get()) > 1 ? meeting.AwaitAll(group_->timeout()) : absl::OkStatus();
  if (!status.ok()) return status;
  status = all();
  if (status.ok()) status = TorchTry("", [&] { return part(meeting); });
  // An error on rank 0 alone must reach the others, too: they wait for its disk.
  if (!status.ok() && RankIn(group_.get()) != 0) return status;
  return meeting.AwaitOutcome(0, status, options_.disk_timeout);
}

// Waits for the background save. Its error is kept until a call has returned it.
void Checkpointer::Impl::AwaitWriter() {
  if (!writer_.valid()) return;
  const absl::Status status = writer_.get();
  if (unreported_.ok()) unreported_ = status;
}

// Aborts a save that waits for other ranks.
void Checkpointer::Impl::CancelCopies() {
  copies_cancelled_ = true;
  AwaitWriter();
  copies_cancelled_ = false;
}

// Prints the error on a rank whose calls return rank 0's result instead.
void Checkpointer::Impl::WarnOfUnreported() {
  const absl::Status earlier = std::exchange(unreported_, absl::OkStatus());
  if (!earlier.ok()) Warn(std::string(earlier.message()));
}

// Returns the outcome of a call on rank 0: its own, combined with the error of an earlier save.
absl::Status Checkpointer::Impl::TakeUnreported(const absl::Status& now) {
  const absl::Status earlier = std::exchange(unreported_, absl::OkStatus());
  if (earlier.ok()) return now;
  if (!now.ok()) return absl::Status(now.code(), absl::StrCat(now.message(), "; before: ", earlier.message()));
  return absl::Status(earlier.code(), absl::StrCat("an earlier save failed, this one continues: ", earlier.message()));
}

absl::Status Checkpointer::Impl::Save(const Progress& progress) {
  const SteadyTime start = SteadyNow();
  at::Tensor random;
  StateParts parts;
  const absl::Status status = RunCollective(
      "Checkpointer::Save",
      [&] { return CatchExceptions("save a checkpoint", [&] { return CheckAndGather(progress, &random, &parts); }); },
      [&](RankMeeting& meeting) { return SavePart(meeting, progress, random, std::move(parts)); });
  stats_.saves += 1;
  stats_.last_stall = SteadyNow() - start;
  stats_.total_stall += stats_.last_stall;
  return status;
}

absl::Status Checkpointer::Impl::Finish() {
  return RunCollective(
      "Checkpointer::Finish", [] { return absl::OkStatus(); },
      [&](RankMeeting&) {
        AwaitWriter();
        if (RankIn(group_.get()) == 0) return std::exchange(unreported_, absl::OkStatus());
        WarnOfUnreported();
        return absl::OkStatus();
      });
}

// Collective. `parts` is set on the ranks that write copies, if there are any.
absl::Status Checkpointer::Impl::CheckAndGather(const Progress& progress, at::Tensor* random, StateParts* parts) {
  // With async, the writer checks the copy on rank 0: a check here would wait for the device.
  if (!options_.allow_non_finite && !options_.async) {
    const absl::Status finite = TorchTry("", [&]() -> absl::Status {
      const absl::StatusOr<StateParts> parts = state_.Parts();
      return parts.ok() ? CheckFinite(RankIn(group_.get()), progress.step, *parts) : parts.status();
    });
    DDPRUN_RETURN_IF_ERROR(OutcomeOfAll(group_.get(), finite));
  }
  if (absl::Status status = Gather(random); !status.ok() || group_ == nullptr) return status;
  if (!copy_ranks_.empty()) {
    const absl::Status made = TorchTry("", [&]() -> absl::Status {
      if (RankIn(group_.get()) != 0 && !WritesCopy()) return absl::OkStatus();
      absl::StatusOr<StateParts> mine = WholeParts(progress, *random);
      if (mine.ok()) *parts = *std::move(mine);
      return mine.status();
    });
    DDPRUN_RETURN_IF_ERROR(BroadcastRankZeroParts(*group_, made, *parts));
  }
  // Gather ran after all earlier collectives: if one of them was aborted on a GPU, the state is garbage.
  return group_->Health();
}

// Collective. Gathers the random state of all ranks, [ranks, bytes]. The first call also exchanges run, round and
// writers.
absl::Status Checkpointer::Impl::Gather(at::Tensor* random) {
  const at::Tensor mine = GetRandomState(state_.Accelerators());
  const bool alone = SizeOf(group_.get()) == 1;
  if (random_bytes_ == 0 || run_ == 0) {
    const int64_t writer = writer_.valid() ? RankIn(group_.get()) : 0;
    at::Tensor most =
        at::tensor({mine.numel(), highest_run_, run_, round_.round, round_.launcher_round, writer}, at::kLong);
    if (!alone) {
      most = most.to(group_->device());
      DDPRUN_RETURN_IF_ERROR(group_->AllReduce(most, ReduceOp::kMax));
      most = most.to(c10::DeviceType::CPU);
    }
    const int64_t* const agreed = most.const_data_ptr<int64_t>();
    random_bytes_ = agreed[0];
    highest_run_ = agreed[1];
    run_ = agreed[2];
    round_ = {agreed[3], agreed[4]};
    former_writer_ = static_cast<int>(agreed[5]);
    if (run_ == 0) BeginRun();
    if (options_.copies > 1) {
      DDPRUN_ASSIGN_OR_RETURN(copy_ranks_, ChooseCopyRanks(group_.get(), place_, options_.copies));
    }
  }
  at::Tensor padded = at::zeros({random_bytes_}, at::kByte);
  padded.slice(0, 0, mine.numel()).copy_(mine);
  if (alone) {
    *random = padded.unsqueeze(0);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<at::Tensor>> all = group_->AllGather(padded.to(group_->device()));
  if (all.ok()) *random = at::stack(*all).to(c10::DeviceType::CPU);
  return all.status();
}

// Starts a new run from scratch, beside the existing files in the folder.
void Checkpointer::Impl::BeginRun() {
  run_ = highest_run_ + 1;
  round_.round = 1;
  if (run_ == 1 || RankIn(group_.get()) != 0) return;
  Warn(absl::StrCat(folder_.folder(),
                    " has checkpoints of an earlier training, which this one did not resume: they are kept, and "
                    "this training saves as ",
                    ModelFileName({run_, 0}), " and so on, which the next Resume continues"));
}

// Rank 0 writes everything; the ranks that write a copy of it report their outcomes to rank 0.
absl::Status Checkpointer::Impl::SavePart(RankMeeting& meeting, const Progress& progress, const at::Tensor& random,
                                          StateParts parts) {
  const int rank = RankIn(group_.get());
  const bool copied = !copy_ranks_.empty();
  const int64_t step = progress.step;
  if (const int writer = std::exchange(former_writer_, 0); writer != 0) {
    // Its files would be mistaken for those of a writer that died.
    if (rank == writer) AwaitWriter();
    if (rank != 0) WarnOfUnreported();
    DDPRUN_RETURN_IF_ERROR(meeting.AwaitOutcome(writer, absl::OkStatus(), options_.disk_timeout));
  }
  if (rank != 0 && !copied) return absl::OkStatus();
  if (rank == 0) AwaitWriter();
  // Rank 0 sends a name of this save when it is done with the previous one, and the others then begin to write.
  std::string save;
  if (copied) {
    DDPRUN_ASSIGN_OR_RETURN(save, meeting.AwaitText(0, RandomId(), options_.disk_timeout));
  }
  if (rank != 0 && !WritesCopy()) return absl::OkStatus();
  const CopyOutcomes outcomes(copied ? group_->store() : nullptr, save, copy_ranks_);
  // Rebind may change the round before the writer has begun.
  const auto write_folder = [=, this, run = run_, round = round_](CheckpointPart model, CheckpointPart rest) {
    return folder_.Save({run, step}, round, std::move(model), std::move(rest), options_.keep);
  };
  if (rank != 0) {
    AwaitWriter();
    unreported_ = absl::OkStatus();  // reported by rank 0
    const absl::Status status = TorchTry("", [&] {
      return SaveParts(step, std::move(parts), write_folder,
                       [=](const absl::Status& written) { outcomes.Post(rank, written); });
    });
    if (!status.ok() || !options_.async) outcomes.Post(rank, status);
    return absl::OkStatus();
  }
  return TakeUnreported(TorchTry("", [&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(StateParts whole, copied ? std::move(parts) : WholeParts(progress, random));
    const auto write = [=, this](CheckpointPart model, CheckpointPart rest) {
      const SteadyTime start = SteadyNow();
      const absl::Status status = write_folder(std::move(model), std::move(rest));
      const absl::Status copies = copied ? outcomes.Await(options_.disk_timeout, copies_cancelled_) : absl::OkStatus();
      last_write_nanoseconds_ = absl::ToInt64Nanoseconds(SteadyNow() - start);
      if (!status.ok() || copies.ok()) return status;
      return absl::Status(copies.code(), absl::StrCat("checkpoint of step ", step,
                                                      " is on rank 0's disk, but a copy failed: ", copies.message()));
    };
    return SaveParts(step, std::move(whole), write, [](const absl::Status&) {});
  }));
}

absl::StatusOr<StateParts> Checkpointer::Impl::WholeParts(const Progress& progress, const at::Tensor& random) const {
  if (progress.step < 0)
    return absl::InvalidArgumentError(absl::StrCat("step is ", progress.step, ", but must not be negative"));
  CheckpointInfo info;
  info.progress = progress;
  info.world_size = SizeOf(group_.get());
  info.version = kVersion;
  info.run = run_;
  info.run_id = run_id_;
  info.round = round_;
  const int64_t cpu_bytes = CpuRandomStateBytes();
  NamedTensors rows = {{kCpuRandomName, random.slice(1, 0, cpu_bytes)}};
  if (random.size(1) > cpu_bytes) rows.emplace_back(kAcceleratorRandomName, random.slice(1, cpu_bytes));
  return state_.Parts(InfoToMetadata(info), std::move(rows));
}

// Copies the tensors to the host and writes them; in the background, the result is passed to `finished`.
absl::Status Checkpointer::Impl::SaveParts(int64_t step, StateParts parts, Write write, Finished finished) {
  if (!options_.async) {
    std::vector<at::Tensor> hosts;
    const auto host_part = [&hosts](const StatePart& part) {
      CheckpointPart file{part.layout, {}};
      for (const at::Tensor& tensor : part.tensors) {
        hosts.push_back(ToHost(tensor));
        file.bytes.push_back(HostBytes(hosts.back()));
      }
      return file;
    };
    CheckpointPart model = host_part(parts.model);
    return write(std::move(model), host_part(parts.rest));
  }
  model_snapshot_.Copy(parts.model.layout, parts.model.tensors);
  rest_snapshot_.Copy(parts.rest.layout, parts.rest.tensors);
  const int rank = RankIn(group_.get());
  const bool from_gpu = !state_.Accelerators().empty();
  writer_ = std::async(std::launch::async, [=, this, group = group_, parts = std::move(parts)]() mutable {
    const absl::Status status = TorchTry("", [&]() -> absl::Status {
      const auto copied = [](HostSnapshot& snapshot, StatePart* part) {
        snapshot.Wait();
        CheckpointPart file{part->layout, snapshot.Bytes()};
        for (size_t i = 0; i < part->tensors.size(); ++i) {
          part->tensors[i] = ReadableTensor(part->layout.tensors[i], file.bytes[i]);
        }
        return file;
      };
      CheckpointPart model = copied(model_snapshot_, &parts.model);
      CheckpointPart rest = copied(rest_snapshot_, &parts.rest);
      if (from_gpu) DDPRUN_RETURN_IF_ERROR(CheckCopied(group.get(), step));
      const absl::Status finite = options_.allow_non_finite ? absl::OkStatus() : CheckFinite(rank, step, parts);
      return finite.ok() ? write(std::move(model), std::move(rest)) : finite;
    });
    finished(status);
    return status;
  });
  return absl::OkStatus();
}

void Checkpointer::Impl::Rebind(std::shared_ptr<ProcessGroup> group, int64_t launcher_round) {
  if (!copy_ranks_.empty()) CancelCopies();
  group_ = std::move(group);
  round_.launcher_round = launcher_round;
  random_bytes_ = 0;  // exchanged again at the next Save
}

absl::StatusOr<bool> Checkpointer::Impl::HasCheckpoint() {
  const absl::StatusOr<std::vector<CheckpointId>> ids = folder_.List();
  const bool here = ids.ok() && std::ranges::any_of(*ids, [this](const CheckpointId& id) { return id.run == run_; });
  return group_ == nullptr ? here : AnyRank(*group_, here);
}

CheckpointStats Checkpointer::Impl::stats() const {
  CheckpointStats stats = stats_;
  stats.last_write = absl::Nanoseconds(last_write_nanoseconds_.load());
  return stats;
}

absl::StatusOr<std::unique_ptr<Checkpointer>> Checkpointer::Create(std::shared_ptr<ProcessGroup> group,
                                                                   TrainingState& state, CheckpointerOptions options) {
  if (options.folder.empty()) {
    return NonRestartable(absl::InvalidArgumentError("CheckpointerOptions::folder is not set"));
  }
  if (options.copies < 1 || (options.copies > 1 && options.shared_folder)) {
    return NonRestartable(absl::InvalidArgumentError(absl::StrCat(
        "CheckpointerOptions::copies is ", options.copies, ", but must be ",
        options.copies < 1 ? "at least 1" : "1 with shared_folder: copies are for folders on each node's own disk")));
  }
  auto impl = std::make_unique<Impl>(std::move(group), state, options);
  DDPRUN_RETURN_IF_ERROR(impl->Make());
  return std::unique_ptr<Checkpointer>(new Checkpointer(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Checkpointer>> Checkpointer::Create(std::shared_ptr<ProcessGroup> group,
                                                                   torch::nn::Module& module,
                                                                   torch::optim::Optimizer* optimizer,
                                                                   CheckpointerOptions options) {
  auto state = std::make_unique<TrainingState>(module, optimizer);
  absl::StatusOr<std::unique_ptr<Checkpointer>> made = Create(std::move(group), *state, std::move(options));
  if (made.ok()) (*made)->impl_->Own(std::move(state));
  return made;
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpointer::~Checkpointer() = default;

absl::StatusOr<CheckpointInfo> Checkpointer::Resume() { return impl_->Resume(); }
absl::Status Checkpointer::Save(const Progress& progress) { return impl_->Save(progress); }
absl::Status Checkpointer::Finish() { return impl_->Finish(); }
void Checkpointer::Rebind(std::shared_ptr<ProcessGroup> group, int64_t launcher_round) {
  impl_->Rebind(std::move(group), launcher_round);
}
absl::StatusOr<bool> Checkpointer::HasCheckpoint() { return impl_->HasCheckpoint(); }
CheckpointStats Checkpointer::stats() const { return impl_->stats(); }

}  // namespace ddprun
