#ifndef DDPRUN_WORKER_RUNTIME_BASE_TORCH_TRY_H_
#define DDPRUN_WORKER_RUNTIME_BASE_TORCH_TRY_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The wall between LibTorch's exceptions and absl::Status, for code that knows of no process group (within one, use
// ProcessGroup::Try, which also names rank and peer). Returns what `body` returns. If it throws, the error is one line,
// "<operation>: <what LibTorch said>", without LibTorch's C++ stack; an empty operation leaves out the prefix.
//
//   InvalidArgument    a tensor, shape, dtype or index that an operator can't take
//   DeadlineExceeded   a store or a backend waited in vain
//   Unavailable        a connection was lost, or could not be made
//   ResourceExhausted  no memory, on the host or on the device
//   Internal           anything else
//
// Thread-safe.
absl::Status TorchTry(absl::string_view operation, absl::FunctionRef<absl::Status()> body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_TORCH_TRY_H_
