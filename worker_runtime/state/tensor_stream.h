#ifndef DDPRUN_WORKER_RUNTIME_STATE_TENSOR_STREAM_H_
#define DDPRUN_WORKER_RUNTIME_STATE_TENSOR_STREAM_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/safetensors/safetensors_header.h"

// Sends the tensors of a file, or of a rank's own state, from one rank to all others.
namespace ddprun {

struct SentTensors {
  std::string path;          // origin of the tensors, for errors
  SafetensorsHeader header;  // the same on all ranks after SendHeader
  std::optional<Seal> seal;  // nullopt: there are no checksums
  // On the sending rank: copies a tensor's bytes, row-major, into host memory. May throw c10::Error.
  std::function<void(size_t index, char* to)> read;
  // One character per tensor: '1' if it goes from GPU to GPU, which requires ProcessGroup::nccl_device, else '0';
  // empty: none does. Equal on all ranks after SendHeader.
  std::string between_gpus = "";
  // On the sending rank: returns a tensor that goes from GPU to GPU. May throw c10::Error.
  std::function<at::Tensor(size_t index)> on_gpu = nullptr;
};

// Collective: sends root's path, header, seal and `between_gpus` to all ranks. `text`: on root, the header's JSON text.
absl::Status SendHeader(ProcessGroup& group, int root, const std::string& text, SentTensors* sent);

// Memory for the largest piece, as bytes.
struct PieceBuffers {
  at::Tensor host;
  at::Tensor gpu;  // undefined: no tensor goes from GPU to GPU
};

// Allocates them. Call it before the ranks agree to begin: afterwards nothing may fail. May throw c10::Error.
PieceBuffers BuffersFor(const ProcessGroup& group, const SentTensors& sent);

// `index` refers to header.tensors; `value` is in host memory or on this rank's GPU, read-only, and valid only during
// the visit.
using VisitTensor = absl::FunctionRef<void(size_t index, const at::Tensor& value)>;

// Collective: `root` sends the tensors in pieces of about 32 MiB, or of one tensor, and all ranks visit them in the
// header's order. Checksums are verified on arrival, except of those that go from GPU to GPU. After a local error,
// including an exception of `visit`, a rank still participates until the end, so that the others do not wait for it.
// Errors: DataLoss names path and tensor; an exception of `visit`, with the tensor; those of the group.
absl::Status VisitSent(ProcessGroup& group, int root, const SentTensors& sent, const PieceBuffers& buffers,
                       VisitTensor visit);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_STATE_TENSOR_STREAM_H_
