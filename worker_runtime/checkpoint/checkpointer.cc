#include "worker_runtime/checkpoint/checkpointer.h"

#include <ATen/Functions.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/base/version.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/checkpoint/checkpoint_content.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpoint_loader.h"
#include "worker_runtime/checkpoint/host_snapshot.h"
#include "worker_runtime/checkpoint/module_state.h"
#include "worker_runtime/checkpoint/random_state.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {
namespace {

void Warn(const std::string& text) { std::fputs(absl::StrCat("ddprun checkpoint: ", text, "\n").c_str(), stderr); }

CheckpointPart PartOf(const FileContent& content, std::vector<absl::string_view> bytes) {
  return CheckpointPart{content.layout, std::move(bytes)};
}

}  // namespace

class Checkpointer::Impl {
 public:
  Impl(std::shared_ptr<ProcessGroup> group, torch::nn::Module& module, torch::optim::Optimizer* optimizer,
       const CheckpointerOptions& options)
      : group_(std::move(group)),
        module_(module),
        optimizer_(optimizer),
        options_(options),
        folder_(options.folder, options.files != nullptr ? *options.files : FileSystem::Real()) {}

  ~Impl() {
    AwaitWriter();
    if (!unreported_.ok()) Warn(std::string(unreported_.message()));
  }

  absl::Status Make() { return RankIn(group_.get()) == 0 ? folder_.Make() : absl::OkStatus(); }

  absl::StatusOr<CheckpointInfo> Resume();
  absl::Status Save(const Progress& progress);
  absl::Status Finish();
  CheckpointStats stats() const;

 private:
  absl::Status Wall(absl::string_view operation, absl::FunctionRef<absl::Status()> body);
  absl::Status Together(const std::string& call, absl::FunctionRef<absl::Status()> all,
                        absl::FunctionRef<absl::Status()> rank_zero);
  void AwaitWriter();
  absl::Status TakeUnreported(const absl::Status& now);
  absl::StatusOr<std::vector<at::Tensor>> GatherRandom();
  absl::Status SaveOnRankZero(const Progress& progress, const std::vector<at::Tensor>& random);
  absl::Status SaveNow(int64_t step, const CheckpointContent& content);
  void SaveInBackground(int64_t step, const CheckpointContent& content);
  absl::Status Write(int64_t step, CheckpointPart model, CheckpointPart state);

  const std::shared_ptr<ProcessGroup> group_;  // nullptr: alone
  torch::nn::Module& module_;
  torch::optim::Optimizer* const optimizer_;
  const CheckpointerOptions options_;
  CheckpointFolder folder_;

  int64_t random_bytes_ = 0;  // of the rank that has most; 0: not asked yet
  CheckpointStats stats_;     // but for last_write
  std::atomic<int64_t> last_write_nanoseconds_{0};

  // The writer's while it runs.
  HostSnapshot model_snapshot_;
  HostSnapshot state_snapshot_;
  std::future<absl::Status> writer_;

  absl::Status unreported_;  // of earlier saves in the background
};

// The wall for LibTorch's exceptions: the group's if there is one, as it can say more.
absl::Status Checkpointer::Impl::Wall(absl::string_view operation, absl::FunctionRef<absl::Status()> body) {
  return group_ != nullptr ? group_->Try(operation, body) : TorchTry(operation, body);
}

absl::StatusOr<CheckpointInfo> Checkpointer::Impl::Resume() {
  CheckpointInfo info;
  const absl::Status status = Wall("load a checkpoint", [&]() -> absl::Status {
    absl::StatusOr<CheckpointInfo> loaded =
        CheckpointLoader(group_.get(), module_, optimizer_, folder_, options_.shared_folder, options_.disk_timeout)
            .Load();
    if (loaded.ok()) info = *std::move(loaded);
    return loaded.status();
  });
  if (!status.ok()) return status;
  if (RankIn(group_.get()) == 0) {
    for (const std::string& skipped : info.skipped) Warn(absl::StrCat("skipped: ", skipped));
  }
  return info;
}

// A collective call: `all` runs on all ranks once they are all there, then `rank_zero` on rank 0, whose disk the others
// wait for.
absl::Status Checkpointer::Impl::Together(const std::string& call, absl::FunctionRef<absl::Status()> all,
                                          absl::FunctionRef<absl::Status()> rank_zero) {
  RankMeeting meeting(group_.get(), call);
  absl::Status status = SizeOf(group_.get()) > 1 ? meeting.AwaitAll(group_->timeout()) : absl::OkStatus();
  if (status.ok()) status = all();
  if (!status.ok()) return status;
  if (RankIn(group_.get()) == 0) status = TorchTry("", rank_zero);
  return meeting.AwaitOutcome(0, status, options_.disk_timeout);
}

// Keeps its error until a call has returned it.
void Checkpointer::Impl::AwaitWriter() {
  if (!writer_.valid()) return;
  const absl::Status status = writer_.get();
  if (unreported_.ok()) unreported_ = status;
}

// The outcome of a call on rank 0: its own, and the error of an earlier save.
absl::Status Checkpointer::Impl::TakeUnreported(const absl::Status& now) {
  const absl::Status earlier = std::exchange(unreported_, absl::OkStatus());
  if (earlier.ok()) return now;
  if (!now.ok()) return absl::Status(now.code(), absl::StrCat(now.message(), "; before: ", earlier.message()));
  return absl::Status(earlier.code(), absl::StrCat("an earlier save failed, this one continues: ", earlier.message()));
}

absl::Status Checkpointer::Impl::Save(const Progress& progress) {
  const SteadyTime start = SteadyNow();
  std::vector<at::Tensor> random;
  const absl::Status status = Together(
      "Checkpointer::Save",
      [&] {
        return Wall("save a checkpoint", [&]() -> absl::Status {
          absl::StatusOr<std::vector<at::Tensor>> gathered = GatherRandom();
          if (gathered.ok()) random = *std::move(gathered);
          return gathered.status();
        });
      },
      [&] {
        AwaitWriter();
        return TakeUnreported(TorchTry("", [&] { return SaveOnRankZero(progress, random); }));
      });
  stats_.saves += 1;
  stats_.last_stall = SteadyNow() - start;
  stats_.total_stall += stats_.last_stall;
  return status;
}

absl::Status Checkpointer::Impl::Finish() {
  return Together(
      "Checkpointer::Finish", [] { return absl::OkStatus(); },
      [&] {
        AwaitWriter();
        return std::exchange(unreported_, absl::OkStatus());
      });
}

// Collective. On rank 0 the states of all ranks, of the same length.
absl::StatusOr<std::vector<at::Tensor>> Checkpointer::Impl::GatherRandom() {
  at::Tensor mine = GetRandomState(AcceleratorsOf(GetModuleState(module_).tensors));
  if (SizeOf(group_.get()) == 1) return std::vector<at::Tensor>{mine};
  const c10::Device device = DeviceOf(*group_);
  if (random_bytes_ == 0) {
    at::Tensor most = at::full({1}, mine.numel(), at::kLong).to(device);
    if (absl::Status status = group_->AllReduce(most, ReduceOp::kMax); !status.ok()) return status;
    random_bytes_ = most.item<int64_t>();
  }
  at::Tensor padded = at::zeros({random_bytes_}, at::kByte);
  padded.slice(0, 0, mine.numel()).copy_(mine);
  absl::StatusOr<std::vector<at::Tensor>> all = group_->AllGather(padded.to(device));
  if (!all.ok()) return all.status();
  for (at::Tensor& one : *all) one = one.to(c10::DeviceType::CPU);
  return all;
}

absl::Status Checkpointer::Impl::SaveOnRankZero(const Progress& progress, const std::vector<at::Tensor>& random) {
  if (progress.step < 0)
    return absl::InvalidArgumentError(absl::StrCat("step is ", progress.step, ", but must not be negative"));
  CheckpointInfo info;
  info.progress = progress;
  info.world_size = SizeOf(group_.get());
  info.version = kVersion;
  absl::StatusOr<CheckpointContent> content = CollectContent(module_, optimizer_, random, info);
  if (!content.ok()) return content.status();
  if (!options_.async) return SaveNow(progress.step, *content);
  SaveInBackground(progress.step, *content);
  return absl::OkStatus();
}

absl::Status Checkpointer::Impl::SaveNow(int64_t step, const CheckpointContent& content) {
  std::vector<at::Tensor> hosts;
  const auto bytes_of = [&hosts](const FileContent& file) {
    std::vector<absl::string_view> bytes;
    for (const at::Tensor& tensor : file.tensors) {
      hosts.push_back(ToHost(tensor));
      bytes.push_back(HostBytes(hosts.back()));
    }
    return bytes;
  };
  std::vector<absl::string_view> model = bytes_of(content.model);
  return Write(step, PartOf(content.model, std::move(model)), PartOf(content.state, bytes_of(content.state)));
}

void Checkpointer::Impl::SaveInBackground(int64_t step, const CheckpointContent& content) {
  model_snapshot_.Copy(content.model.layout, content.model.tensors);
  state_snapshot_.Copy(content.state.layout, content.state.tensors);
  writer_ = std::async(std::launch::async, [this, step, model = content.model.layout, state = content.state.layout] {
    return TorchTry("", [&] {
      model_snapshot_.Wait();
      state_snapshot_.Wait();
      return Write(step, {model, model_snapshot_.Bytes()}, {state, state_snapshot_.Bytes()});
    });
  });
}

absl::Status Checkpointer::Impl::Write(int64_t step, CheckpointPart model, CheckpointPart state) {
  const SteadyTime start = SteadyNow();
  const absl::Status status = folder_.Save(step, std::move(model), std::move(state), options_.keep);
  last_write_nanoseconds_ = absl::ToInt64Nanoseconds(SteadyNow() - start);
  return status;
}

CheckpointStats Checkpointer::Impl::stats() const {
  CheckpointStats stats = stats_;
  stats.last_write = absl::Nanoseconds(last_write_nanoseconds_.load());
  return stats;
}

absl::StatusOr<std::unique_ptr<Checkpointer>> Checkpointer::Create(std::shared_ptr<ProcessGroup> group,
                                                                   torch::nn::Module& module,
                                                                   torch::optim::Optimizer* optimizer,
                                                                   CheckpointerOptions options) {
  if (options.folder.empty()) return absl::InvalidArgumentError("CheckpointerOptions::folder is not set");
  auto impl = std::make_unique<Impl>(std::move(group), module, optimizer, options);
  if (absl::Status status = impl->Make(); !status.ok()) return status;
  return std::unique_ptr<Checkpointer>(new Checkpointer(std::move(impl)));
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpointer::~Checkpointer() = default;

absl::StatusOr<CheckpointInfo> Checkpointer::Resume() { return impl_->Resume(); }
absl::Status Checkpointer::Save(const Progress& progress) { return impl_->Save(progress); }
absl::Status Checkpointer::Finish() { return impl_->Finish(); }
CheckpointStats Checkpointer::stats() const { return impl_->stats(); }

}  // namespace ddprun
