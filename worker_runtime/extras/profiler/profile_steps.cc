#include "worker_runtime/extras/profiler/profile_steps.h"

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hostname.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/base/torch_try.h"

namespace torch::autograd::profiler {
// Declared in torch/csrc/profiler/kineto_shim.h, which includes headers of Kineto that LibTorch does not ship.
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);
}  // namespace torch::autograd::profiler

namespace ddprun {
namespace {

namespace profiler = torch::autograd::profiler;

enum class Phase { kWait, kWarmup, kActive };

// Phase of the step after `done` steps, according to the schedule of torch.profiler.schedule.
Phase PhaseOf(int64_t done, const ProfileOptions& options) {
  const int64_t cycle = options.wait + options.warmup + options.active;
  if (options.repeat > 0 && done / cycle >= options.repeat) return Phase::kWait;
  const int64_t step = done % cycle;
  if (step < options.wait) return Phase::kWait;
  return step < options.wait + options.warmup ? Phase::kWarmup : Phase::kActive;
}

bool IsLastOfCycle(int64_t done, const ProfileOptions& options) {
  return (done + 1) % (options.wait + options.warmup + options.active) == 0;
}

}  // namespace

class ProfileSteps::Impl {
 public:
  Impl(const ProcessGroup& group, ProfileOptions options)
      : options_(std::move(options)),
        prefix_(absl::StrCat(options_.folder, "/", Hostname(), "_", group.rank(), ".")),
        distributed_(absl::StrCat("{\"backend\": \"", group.backend(), "\", \"rank\": ", group.rank(),
                                  ", \"world_size\": ", group.size(), "}")) {
    if (at::hasCUDA()) activities_.insert(torch::profiler::impl::ActivityType::CUDA);
  }

  ~Impl() {
    if (!recording_) return;
    TorchTry("profiler", [this] { return Save(); }).IgnoreError();
  }

  // Throws c10::Error, like LibTorch.
  absl::Status Begin() {
    const Phase phase = PhaseOf(done_, options_);
    if (phase != Phase::kWait && !prepared_) {
      profiler::prepareProfiler(config_, activities_);
      prepared_ = true;
    }
    if (phase == Phase::kActive && !recording_) {
      profiler::enableProfiler(config_, activities_);
      recording_ = true;
      profiler::addMetadataJson("distributedInfo", distributed_);
    }
    if (recording_) {
      step_.emplace(at::RecordScope::USER_SCOPE);
      step_->before(absl::StrCat("ProfilerStep#", options_.first_step + done_));
    }
    return absl::OkStatus();
  }

  absl::Status End() {
    step_.reset();
    const bool save = recording_ && IsLastOfCycle(done_, options_);
    ++done_;
    return save ? Save() : absl::OkStatus();
  }

 private:
  absl::Status Save() {
    step_.reset();
    recording_ = prepared_ = false;
    const auto result = profiler::disableProfiler();
    const std::string path = absl::StrCat(prefix_, options_.first_step + done_, ".pt.trace.json");
    result->save(path);
    // Kineto only logs a failure to write.
    if (std::error_code error; !std::filesystem::exists(path, error)) {
      return absl::UnavailableError(absl::StrCat("the profiler could not write ", path));
    }
    return absl::OkStatus();
  }

  const ProfileOptions options_;
  const std::string prefix_;
  const std::string distributed_;  // JSON, as Python's profiler writes it
  const torch::profiler::impl::ProfilerConfig config_{torch::profiler::impl::ProfilerState::KINETO};
  std::set<torch::profiler::impl::ActivityType> activities_ = {torch::profiler::impl::ActivityType::CPU};
  int64_t done_ = 0;
  bool prepared_ = false;
  bool recording_ = false;
  std::optional<at::RecordFunction> step_;
};

absl::StatusOr<std::unique_ptr<ProfileSteps>> ProfileSteps::Create(const ProcessGroup& group, ProfileOptions options) {
  if (options.wait < 0 || options.warmup < 0 || options.active < 1 || options.repeat < 0) {
    return absl::InvalidArgumentError(absl::StrCat("profiler: wait=", options.wait, ", warmup=", options.warmup,
                                                   ", active=", options.active, ", repeat=", options.repeat,
                                                   ": active must be at least 1, the others at least 0"));
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("can't create the folder ", options.folder));
  std::unique_ptr<ProfileSteps> steps(new ProfileSteps(std::make_unique<Impl>(group, std::move(options))));
  DDPRUN_RETURN_IF_ERROR(TorchTry("profiler", [&] { return steps->impl_->Begin(); }));
  return steps;
}

ProfileSteps::ProfileSteps(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProfileSteps::~ProfileSteps() = default;

absl::Status ProfileSteps::Step() {
  return TorchTry("profiler", [this]() -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(impl_->End());
    return impl_->Begin();
  });
}

}  // namespace ddprun
