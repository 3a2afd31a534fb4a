#ifndef DDPRUN_WORKER_RUNTIME_BASE_TORCH_TRY_H_
#define DDPRUN_WORKER_RUNTIME_BASE_TORCH_TRY_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Converts LibTorch's exceptions into absl::Status, for code without a process group (with one, use ProcessGroup::Try,
// which also names rank and peer). Returns what `body` returns. If it throws, the error is one line,
// "<operation>: <LibTorch's message>", without LibTorch's C++ stack trace; with an empty operation there is no prefix.
//
//   InvalidArgument    a tensor, shape, dtype or index that an operator does not support
//   DeadlineExceeded   a store or a backend timed out
//   Unavailable        a connection was lost or could not be established
//   ResourceExhausted  out of memory, on the host or on the device
//   Internal           anything else
//
// Thread-safe.
absl::Status TorchTry(absl::string_view operation, absl::FunctionRef<absl::Status()> body);

// Converts a Status back into an exception, for code that LibTorch calls, such as hooks of backward: throws a LibTorch
// exception that TorchTry and ProcessGroup::Try turn into an error with the same message, and with the same code if
// that is DeadlineExceeded, Unavailable or InvalidArgument. Does nothing if `status` is OK.
void ThrowIfError(const absl::Status& status);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_TORCH_TRY_H_
