#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_AMP_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_AMP_H_

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim
namespace ddprun {

// The arguments of Python's torch.amp.GradScaler, with the same names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // < 1
  int64_t growth_interval = 2000;  // steps without overflow before the scale grows
  bool enabled = true;             // false: Step always steps, everything else does nothing
};

// Python's torch.amp.GradScaler, with the same bits: multiplies the loss, so that small gradients do not underflow in
// kHalf (Micikevicius et al., Mixed Precision Training, 2018), and skips steps whose gradients overflowed.
//
//   scaler.Scale(loss).backward();
//   scaler.Unscale(optimizer);                                // only if gradients are looked at or clipped
//   ddprun::ClipGradNorm(parameters, 1.0);
//   scaler.Step(optimizer);
//   scaler.Update();
//
// Works with any optimizer. As in Python, the fused ddprun::AdamW divides the gradients itself if Unscale was not
// called.
//
// With DistributedDataParallel all ranks skip the same steps and keep the same scale, without communicating: gradients
// are averaged before they are checked, and an infinite or NaN gradient of one rank makes the average infinite or NaN
// on all of them.
//
// Register it with the TrainingState (AddScaler). Each Step waits for the device once, even with the fused AdamW, whose
// state counts the steps in host memory. Throws c10::Error, like LibTorch's optimizers. Thread-compatible.
class GradScaler {
 public:
  // Throws c10::ValueError for a factor out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  // Returns the loss (or any other output) times the scale, in its dtype and shape.
  at::Tensor Scale(const at::Tensor& loss);

  // Divides the gradients of the optimizer's parameters by the scale, in place, and checks whether they are finite. At
  // most once before Step. Throws c10::ValueError for gradients in kHalf: keep parameters in float.
  void Unscale(torch::optim::Optimizer& optimizer);

  // Calls Unscale, if it was not called, then optimizer.step() if all gradients are finite. Returns true if the step
  // was made.
  bool Step(torch::optim::Optimizer& optimizer);

  // Call at the end of an iteration, after the Step of every optimizer. Multiplies the scale by backoff_factor if a
  // step was skipped, by growth_factor after growth_interval iterations in a row without a skip.
  void Update();

  // Scale, and number of iterations without overflow since it changed. Both wait for the device. 1 and 0 if not
  // enabled.
  float scale() const;
  int64_t growth_tracker() const;

  // Scale and growth tracker as a text, for TrainingState; empty if not enabled. SetState also discards a Step or
  // Unscale without an Update; the empty text changes nothing. Errors: DataLoss if the text was not written by State.
  std::string State() const;
  absl::Status SetState(const std::string& state);

 private:
  // Float, no dimensions, per device: above 0 if a gradient on the device was not finite.
  using FoundInf = std::unordered_map<c10::Device, at::Tensor>;
  enum class Stage { kReady, kUnscaled, kStepped };
  // Progress with an optimizer's gradients since the last Update.
  struct Progress {
    Stage stage = Stage::kReady;
    FoundInf found_inf;
  };

  void CheckHasScale(const char* operation) const;
  // Multiplies the gradients by `factor` (float, no dimensions).
  static FoundInf CheckAndMultiply(torch::optim::Optimizer& optimizer, const at::Tensor& factor, bool allow_half);

  const GradScalerOptions options_;
  at::Tensor scale_;           // float, no dimensions, on the device of the first loss; undefined before it
  at::Tensor growth_tracker_;  // like scale_, but int32
  float first_scale_;
  int32_t first_growth_tracker_ = 0;
  std::unordered_map<const torch::optim::Optimizer*, Progress> progress_;
};

// Python's torch.autocast, as a guard: while it exists, operations on floating-point tensors of the device type run in
// the dtype that LibTorch's lists choose for each of them (matrix products and convolutions in `dtype`, reductions and
// losses in float). Parameters stay float; their casts are cached and dropped when the outermost guard ends.
//
//   at::Tensor loss;
//   {
//     ddprun::Autocast autocast(c10::DeviceType::CUDA, at::kBFloat16);
//     loss = Loss((*ddp)->forward(inputs), targets);
//   }
//   loss.backward();   // outside: backward runs each operation in the dtype of its forward
//
// Gradients of kHalf underflow without a GradScaler; kBFloat16 needs none. Guards nest; the innermost one applies.
// Affects only the thread that created it, which must also destroy it, in reverse order.
class Autocast {
 public:
  // dtype: kBFloat16 or kHalf; not set: as in Python, kBFloat16 on a CPU and kHalf on a GPU. `enabled` false disables
  // an outer guard for a part that needs full precision (cast its inputs with to(at::kFloat)). Throws c10::ValueError
  // for another dtype, or a device type that has no autocast.
  explicit Autocast(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const c10::DeviceType device_type_;
  bool enabled_before_;
  c10::ScalarType dtype_before_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_AMP_H_
