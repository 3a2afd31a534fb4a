#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_AMP_AUTOCAST_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_AMP_AUTOCAST_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace ddprun {

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

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_AMP_AUTOCAST_H_
