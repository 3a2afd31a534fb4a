#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSOR_BYTES_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSOR_BYTES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/checkpoint/safetensors_header.h"

// Tensors as the bytes that stand in a file. Functions that copy throw c10::Error as LibTorch does: call them in
// TorchTry.
namespace ddprun {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Nullopt: the format has no such type (quantized, complex with doubles).
std::optional<SafetensorsDtype> ToSafetensorsDtype(c10::ScalarType type);
c10::ScalarType ToScalarType(SafetensorsDtype dtype);

// Name, dtype and shape of tensors that are to be written.
// Errors: InvalidArgument names a tensor that is undefined, sparse, or of a type that the format does not have.
absl::StatusOr<std::vector<SafetensorsTensor>> DescribeTensors(const NamedTensors& tensors);

// The values in host memory, row-major: `tensor` itself if it is so already.
at::Tensor ToHost(const at::Tensor& tensor);

// The bytes of what ToHost returned, as long as that lives.
absl::string_view HostBytes(const at::Tensor& host);

// Host bytes as a tensor without a copy. `bytes` outlives it, is aligned to the element, and has the shape's size.
at::Tensor TensorOnBytes(const SafetensorsTensor& tensor, char* bytes);

// The same for bytes that are only read: moved to an aligned place if they lie at an odd one.
at::Tensor ReadableTensor(const SafetensorsTensor& tensor, absl::string_view bytes);

// A truth value of a file must be 0 or 1: anything else is undefined in C++.
// Errors: DataLoss names the tensor and `file`.
absl::Status CheckValues(absl::string_view file, const SafetensorsTensor& tensor, absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSOR_BYTES_H_
