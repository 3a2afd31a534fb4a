#include "worker_runtime/extras/amp.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "worker_runtime/extras/optim.h"

namespace ddprun {

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), first_scale_(static_cast<float>(options.init_scale)) {
  TORCH_CHECK_VALUE(options.growth_factor > 1, "GradScaler: growth_factor must be > 1, got ", options.growth_factor);
  TORCH_CHECK_VALUE(options.backoff_factor < 1, "GradScaler: backoff_factor must be < 1, got ", options.backoff_factor);
}

void GradScaler::CheckHasScale(const char* operation) const {
  TORCH_CHECK(scale_.defined(), "GradScaler::", operation, ": no loss was scaled; call Scale(loss).backward() first");
}

at::Tensor GradScaler::Scale(const at::Tensor& loss) {
  if (!options_.enabled) return loss;
  if (!scale_.defined()) {
    const at::TensorOptions on_device = at::TensorOptions().device(loss.device());
    scale_ = at::full({}, first_scale_, on_device.dtype(at::kFloat));
    growth_tracker_ = at::full({}, first_growth_tracker_, on_device.dtype(at::kInt));
  }
  return loss * scale_.to(loss.device(), /*non_blocking=*/true);
}

GradScaler::FoundInf GradScaler::CheckAndMultiply(torch::optim::Optimizer& optimizer, const at::Tensor& factor,
                                                  bool allow_half) {
  const at::NoGradGuard no_grad;
  // The kernel takes gradients of one device and dtype.
  std::unordered_map<c10::Device, std::map<at::ScalarType, std::vector<at::Tensor>>> gradients;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      TORCH_CHECK_VALUE(allow_half || gradient.scalar_type() != at::kHalf, "GradScaler: a gradient of shape ",
                        gradient.sizes(),
                        " is in Half; keep the parameters in Float and let Autocast choose the dtype of operations");
      gradients[gradient.device()][gradient.scalar_type()].push_back(gradient.is_sparse() ? gradient._values()
                                                                                          : gradient);
    }
  }
  TORCH_CHECK(!gradients.empty(), "GradScaler: no parameter of the optimizer has a gradient; call backward first");
  FoundInf found_inf;
  for (auto& [device, dtypes] : gradients) {
    at::Tensor found = at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
    for (const auto& [dtype, tensors] : dtypes) {
      at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, factor.to(device, /*non_blocking=*/true));
    }
    found_inf.emplace(device, std::move(found));
  }
  return found_inf;
}

void GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  CheckHasScale("Unscale");
  Progress& progress = progress_[&optimizer];
  TORCH_CHECK(progress.stage != Stage::kUnscaled,
              "GradScaler::Unscale was already called for this optimizer since the last Update");
  TORCH_CHECK(progress.stage != Stage::kStepped, "GradScaler::Unscale was called after Step; call Update first");
  // In double, as Python does.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  progress.found_inf = CheckAndMultiply(optimizer, inverse, /*allow_half=*/false);
  progress.stage = Stage::kUnscaled;
}

bool GradScaler::Step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  CheckHasScale("Step");
  Progress& progress = progress_[&optimizer];
  TORCH_CHECK(progress.stage != Stage::kStepped,
              "GradScaler::Step was already called for this optimizer; call Update at the end of each iteration");
  auto* const adamw = dynamic_cast<AdamW*>(&optimizer);
  // Division by the scale and multiplication by its reciprocal round differently unless the scale is a power of two.
  const bool divides = progress.stage == Stage::kReady && adamw != nullptr && adamw->kernel() == AdamWKernel::kFused;
  if (divides) {
    progress.found_inf = CheckAndMultiply(optimizer, at::ones_like(scale_), /*allow_half=*/true);
  } else if (progress.stage == Stage::kReady) {
    Unscale(optimizer);
  }
  progress.stage = Stage::kStepped;
  for (const auto& [device, found] : progress.found_inf) {
    if (found.item<float>() != 0) return false;
  }
  if (divides) {
    adamw->StepWithScaledGradients(scale_);
  } else {
    optimizer.step();
  }
  return true;
}

void GradScaler::Update() {
  if (!options_.enabled) return;
  CheckHasScale("Update");
  at::Tensor found_inf;
  for (const auto& [optimizer, progress] : progress_) {
    for (const auto& [device, found] : progress.found_inf) {
      const at::Tensor here = found.to(scale_.device(), /*non_blocking=*/true);
      found_inf = found_inf.defined() ? found_inf + here : here;
    }
  }
  TORCH_CHECK(found_inf.defined(), "GradScaler::Update: no gradients were checked; call Step first");
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  progress_.clear();
}

float GradScaler::scale() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? scale_.item<float>() : first_scale_;
}

int64_t GradScaler::growth_tracker() const {
  if (!options_.enabled) return 0;
  return growth_tracker_.defined() ? growth_tracker_.item<int32_t>() : first_growth_tracker_;
}

std::string GradScaler::State() const {
  if (!options_.enabled) return "";
  // Enough digits to restore the float exactly.
  return absl::StrFormat("%.9g %d", scale(), growth_tracker());
}

absl::Status GradScaler::SetState(const std::string& state) {
  if (!options_.enabled || state.empty()) return absl::OkStatus();
  const std::vector<std::string> words = absl::StrSplit(state, ' ');
  float scale;
  int32_t tracker;
  if (words.size() != 2 || !absl::SimpleAtof(words[0], &scale) || !absl::SimpleAtoi(words[1], &tracker)) {
    return absl::DataLossError(absl::StrCat("\"", OneLine(state, 60), "\" is not a GradScaler state"));
  }
  progress_.clear();
  first_scale_ = scale;
  first_growth_tracker_ = tracker;
  // Recreated by the next Scale.
  scale_.reset();
  growth_tracker_.reset();
  return absl::OkStatus();
}

Autocast::Autocast(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype, bool enabled)
    : device_type_(device_type) {
  TORCH_CHECK_VALUE(at::autocast::is_autocast_available(device_type), "Autocast does not support device type ",
                    c10::DeviceTypeName(device_type, /*lower_case=*/true));
  enabled_before_ = at::autocast::is_autocast_enabled(device_type);
  dtype_before_ = at::autocast::get_autocast_dtype(device_type);
  const c10::ScalarType chosen = dtype.value_or(dtype_before_);
  TORCH_CHECK_VALUE(chosen == at::kBFloat16 || chosen == at::kHalf, "Autocast supports BFloat16 and Half, not ",
                    c10::toString(chosen));
  at::autocast::set_autocast_enabled(device_type, enabled);
  at::autocast::set_autocast_dtype(device_type, chosen);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_type_, enabled_before_);
  at::autocast::set_autocast_dtype(device_type_, dtype_before_);
}

}  // namespace ddprun
