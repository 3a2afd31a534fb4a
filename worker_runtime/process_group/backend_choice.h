#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Which backend moves tensors of which device. At least one of both is set.
struct BackendChoice {
  bool gloo_for_cpu = false;
  bool gloo_for_cuda = false;
  bool nccl_for_cuda = false;

  bool gloo() const { return gloo_for_cpu || gloo_for_cuda; }
  bool nccl() const { return nccl_for_cuda; }

  // As PyTorch writes it: "gloo", "nccl", or one per device as in "cpu:gloo,cuda:nccl".
  std::string ToString() const;

  friend bool operator==(const BackendChoice&, const BackendChoice&) = default;
};

// Reads torch.distributed's notation. A bare "gloo" serves both devices, as in Python; empty text chooses by
// `device_is_cuda`: "cpu:gloo,cuda:nccl" or "gloo".
// Errors: InvalidArgument says which word is unknown and what there is.
absl::StatusOr<BackendChoice> ParseBackendChoice(absl::string_view text, bool device_is_cuda);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_BACKEND_CHOICE_H_
