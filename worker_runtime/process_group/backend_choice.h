#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Assignment of backends to devices. At least one field is true.
struct BackendChoice {
  bool gloo_for_cpu = false;
  bool gloo_for_cuda = false;
  bool nccl_for_cuda = false;

  bool gloo() const { return gloo_for_cpu || gloo_for_cuda; }
  bool nccl() const { return nccl_for_cuda; }

  // Returns PyTorch's notation: "gloo", "nccl", or one per device as in "cpu:gloo,cuda:nccl".
  std::string ToString() const;

  friend bool operator==(const BackendChoice&, const BackendChoice&) = default;
};

// Parses torch.distributed's notation. "gloo" alone handles both devices, as in Python. Empty text:
// "cpu:gloo,cuda:nccl" if `device_is_cuda`, else "gloo".
// Errors: InvalidArgument names the unknown word and the valid ones.
absl::StatusOr<BackendChoice> ParseBackendChoice(absl::string_view text, bool device_is_cuda);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_
