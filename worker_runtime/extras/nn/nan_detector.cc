#include "worker_runtime/extras/nn/nan_detector.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/process_group/agreement.h"

namespace ddprun {

// The parameters, and the sums of the gradients that have arrived since the last Take. Sums stay on their device, so
// that backward never waits for a GPU.
class NanDetector::Gradients {
 public:
  explicit Gradients(const torch::nn::Module& module) {
    std::unordered_set<const void*> seen;  // tied weights
    for (const auto& parameter : module.named_parameters()) {
      if (!seen.insert(parameter.value().unsafeGetTensorImpl()).second) continue;
      parameters_.emplace_back(parameter.key(), parameter.value());
    }
    sums_.resize(parameters_.size());
  }

  static void Watch(const std::shared_ptr<Gradients>& gradients) {
    for (size_t i = 0; i < gradients->parameters_.size(); ++i) {
      const at::Tensor& parameter = gradients->parameters_[i].second;
      if (!parameter.requires_grad()) continue;
      // The tensor owns its hooks, which must not own the tensor.
      gradients->hooks_.emplace_back(
          parameter, parameter.register_hook([weak = std::weak_ptr(gradients), i](const at::Tensor& gradient) {
            if (const auto all = weak.lock()) all->Add(i, gradient);
          }));
    }
  }

  void Unwatch() {
    for (const auto& [parameter, hook] : hooks_) parameter.remove_hook(hook);
  }

  // Describes the first value that is not finite; empty if all are finite.
  std::string FirstBad(const at::Tensor& loss) {
    const std::vector<std::pair<size_t, at::Tensor>> arrived = Take();
    const std::string bad_gradient = FirstBadOf(arrived);
    const double loss_value = loss.detach().item<double>();
    if (bad_gradient.empty() && std::isfinite(loss_value)) return "";
    for (const auto& [name, parameter] : parameters_) {
      if (!at::isfinite(parameter.detach()).all().item<bool>()) {
        return absl::StrCat("parameter \"", name,
                            "\" is not finite because of an earlier optimizer step; check the learning rate and the "
                            "previous losses, and resume from a checkpoint");
      }
    }
    if (!std::isfinite(loss_value)) {
      return absl::StrCat(
          "the loss is ", loss_value,
          " although all parameters are finite; check this rank's batch, or find the operator with NanInForward");
    }
    return absl::StrCat(
        "the gradient of parameter \"", bad_gradient,
        "\" is the first in backward that is not finite, although the loss (", loss_value,
        ") and all parameters are; check the operations after this parameter for infinite derivatives, or "
        "call backward under torch::autograd::DetectAnomalyGuard");
  }

 private:
  // Called on autograd's threads, one per device.
  void Add(size_t index, const at::Tensor& gradient) {
    const at::Tensor values = (gradient.is_sparse() ? gradient._values() : gradient).detach();
    at::Tensor sum = values.scalar_type() == at::kDouble ? values.sum() : values.sum(at::kFloat);
    MutexLock lock(&mutex_);
    if (!sums_[index].defined()) order_.push_back(index);
    sums_[index] = sums_[index].defined() ? sums_[index] + sum : std::move(sum);
  }

  std::vector<std::pair<size_t, at::Tensor>> Take() {
    MutexLock lock(&mutex_);
    std::vector<std::pair<size_t, at::Tensor>> arrived;
    for (const size_t index : order_) arrived.emplace_back(index, std::exchange(sums_[index], at::Tensor()));
    order_.clear();
    return arrived;
  }

  std::string FirstBadOf(const std::vector<std::pair<size_t, at::Tensor>>& arrived) const {
    if (arrived.empty()) return "";
    std::vector<at::Tensor> sums;
    // Moved to one device first, so that a single copy takes them to the host.
    for (const auto& [index, sum] : arrived) sums.push_back(sum.to(arrived[0].second.device(), at::kDouble));
    const at::Tensor on_host = at::stack(sums).cpu();
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!std::isfinite(on_host.const_data_ptr<double>()[i])) return parameters_[arrived[i].first].first;
    }
    return "";
  }

  std::vector<std::pair<std::string, at::Tensor>> parameters_;  // with their names
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  Mutex mutex_;
  std::vector<at::Tensor> sums_ ABSL_GUARDED_BY(mutex_);  // by parameter; undefined: none has arrived
  std::vector<size_t> order_ ABSL_GUARDED_BY(mutex_);     // of arrival
};

NanDetector::NanDetector(const torch::nn::Module& module) : gradients_(std::make_shared<Gradients>(module)) {
  Gradients::Watch(gradients_);
}

NanDetector::~NanDetector() { gradients_->Unwatch(); }

absl::Status NanDetector::Check(const at::Tensor& loss, ProcessGroup& group) {
  absl::Status found;
  DDPRUN_RETURN_IF_ERROR(group.Try("looking for NaN", [&] {
    if (const std::string bad = gradients_->FirstBad(loss); !bad.empty()) {
      found = absl::FailedPreconditionError(absl::StrCat("not finite on rank ", group.rank(), ": ", bad));
    }
    return absl::OkStatus();
  }));
  return OutcomeOfAll(&group, found);
}

}  // namespace ddprun
