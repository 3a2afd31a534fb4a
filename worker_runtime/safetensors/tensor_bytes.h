#ifndef DDPRUN_WORKER_RUNTIME_SAFETENSORS_TENSOR_BYTES_H_
#define DDPRUN_WORKER_RUNTIME_SAFETENSORS_TENSOR_BYTES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/safetensors/safetensors_header.h"

// Tensors as bytes in a file. Functions that copy throw c10::Error like LibTorch: call them inside TorchTry.
namespace ddprun {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Nullopt: the format does not support this type (quantized, complex double).
std::optional<SafetensorsDtype> ToSafetensorsDtype(c10::ScalarType type);
c10::ScalarType ToScalarType(SafetensorsDtype dtype);

// Returns name, dtype and shape of tensors to be written.
// Errors: InvalidArgument names a tensor that is undefined, sparse, or of an unsupported type.
absl::StatusOr<std::vector<SafetensorsTensor>> DescribeTensors(const NamedTensors& tensors);

// Returns the values in host memory, row-major; `tensor` itself if it already is.
at::Tensor ToHost(const at::Tensor& tensor);

// The bytes of a tensor returned by ToHost, valid while it exists.
absl::string_view HostBytes(const at::Tensor& host);

// Host bytes as a tensor, without a copy. `bytes` must outlive it, be aligned to the element and have the shape's size.
at::Tensor TensorOnBytes(const SafetensorsTensor& tensor, char* bytes);

// Read-only variant; copies the bytes if they are not aligned.
at::Tensor ReadableTensor(const SafetensorsTensor& tensor, absl::string_view bytes);

// A bool in a file must be 0 or 1: anything else is undefined behavior in C++.
// Errors: DataLoss names the tensor and `file`.
absl::Status CheckValues(absl::string_view file, const SafetensorsTensor& tensor, absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SAFETENSORS_TENSOR_BYTES_H_
