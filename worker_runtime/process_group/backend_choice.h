#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// LibTorch's backends over NCCL. kNccl2 is Python's default since PyTorch 2.15; it handles the tensors of one GPU per
// rank only.
enum class NcclEngine { kLegacy, kNccl2 };

// Assignment of backends to devices. At least one of the first three fields is true.
struct BackendChoice {
  bool gloo_for_cpu = false;
  bool gloo_for_cuda = false;
  bool nccl_for_cuda = false;
  NcclEngine engine = NcclEngine::kLegacy;

  bool gloo() const { return gloo_for_cpu || gloo_for_cuda; }
  bool nccl() const { return nccl_for_cuda; }

  // Returns PyTorch's notation: "gloo", "nccl", "nccl2", or one per device as in "cpu:gloo,cuda:nccl".
  std::string ToString() const;

  friend bool operator==(const BackendChoice&, const BackendChoice&) = default;
};

// Parses torch.distributed's notation. "gloo" alone handles both devices, as in Python. Empty text:
// "cpu:gloo,cuda:nccl" if `device_is_cuda`, else "gloo". "nccl2" and "nccl-legacy" name the engine; "nccl" is the
// legacy one unless PyTorch's variable TORCH_DIST_USE_NCCL2 is "1".
// Errors: InvalidArgument names the unknown word and the valid ones.
absl::StatusOr<BackendChoice> ParseBackendChoice(absl::string_view text, bool device_is_cuda);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_
