#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSOR_STREAM_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSOR_STREAM_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/checkpoint/safetensors_file.h"
#include "worker_runtime/checkpoint/safetensors_header.h"
#include "worker_runtime/checkpoint/seal.h"
#include "worker_runtime/process_group/process_group.h"

// Visits the tensors of a file in file order, and verifies each checksum. `index` is into header.tensors; `value` is in
// host memory, read-only, and valid only during the visit.
//
// Errors: DataLoss names file and tensor; what `visit` returned. May throw c10::Error: call within ProcessGroup::Try or
// TorchTry.
namespace ddprun {

using VisitTensor = absl::FunctionRef<void(size_t index, const at::Tensor& value)>;

absl::Status VisitFile(const SafetensorsFile& file, VisitTensor visit);

// A file that rank 0 has open, and of which other ranks have only the header.
struct SentFile {
  std::string path;                       // rank 0's, for errors
  SafetensorsHeader header;               // the same on all ranks
  std::optional<Seal> seal;               // the same on all ranks
  const SafetensorsFile* file = nullptr;  // on rank 0
};

// Collective: rank 0 sends the file in pieces of some 32 MiB, or of one tensor, so that no rank holds all of it twice.
// After a local error, an exception of `visit` included, a rank still receives the rest, so that the others do not wait
// for it.
absl::Status VisitSentFile(ProcessGroup& group, const SentFile& sent, VisitTensor visit);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSOR_STREAM_H_
