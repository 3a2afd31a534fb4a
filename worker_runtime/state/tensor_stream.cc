#include "worker_runtime/state/tensor_stream.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/safetensors/tensor_bytes.h"

namespace ddprun {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
constexpr char kSealed[] = "sealed";

bool GoesBetweenGpus(const SentTensors& sent, size_t index) {
  return !sent.between_gpus.empty() && sent.between_gpus[index] == '1';
}

// Returns the end of the piece that begins with tensor `first`. A tensor that goes from GPU to GPU is a piece.
size_t EndOfPiece(const SentTensors& sent, size_t first) {
  const std::vector<SafetensorsTensor>& tensors = sent.header.tensors;
  size_t last = first + 1;
  if (GoesBetweenGpus(sent, first)) return last;
  while (last < tensors.size() && tensors[last].end - tensors[first].begin <= kPieceBytes &&
         !GoesBetweenGpus(sent, last)) {
    ++last;
  }
  return last;
}

absl::Status VisitOne(const SentTensors& sent, bool received, size_t index, absl::string_view bytes,
                      VisitTensor visit) {
  const SafetensorsTensor& tensor = sent.header.tensors[index];
  const std::string name = absl::StrCat("tensor \"", OneLine(tensor.name, 120), "\" of ", sent.path);
  if (received && sent.seal && Checksum(bytes) != sent.seal->tensor_checksums[index]) {
    return absl::DataLossError(absl::StrCat(name, " arrived damaged: checksum mismatch"));
  }
  DDPRUN_RETURN_IF_ERROR(CheckValues(sent.path, tensor, bytes));
  return TorchTry(name, [&] {
    visit(index, ReadableTensor(tensor, bytes));
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status SendHeader(ProcessGroup& group, int root, const std::string& text, SentTensors* sent) {
  const std::string mine =
      absl::StrCat(kSafetensorsPrefixBytes + text.size() + sent->header.data_bytes(), "\n",
                   sent->seal.has_value() ? kSealed : "", "\n", sent->between_gpus, "\n", sent->path, "\n", text);
  const absl::StatusOr<std::string> said = group.BroadcastText(group.rank() == root ? mine : "", root);
  if (!said.ok() || group.rank() == root) return said.status();
  const std::vector<std::string> parts = absl::StrSplit(*said, absl::MaxSplits('\n', 4));
  uint64_t file_bytes = 0;
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[0], &file_bytes)) {
    return absl::InternalError(absl::StrCat("rank ", root, " sent no header"));
  }
  sent->between_gpus = parts[2];
  sent->path = parts[3];
  DDPRUN_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(sent->path, parts[4], file_bytes));
  absl::StatusOr<std::optional<Seal>> seal = std::optional<Seal>();
  if (parts[1] == kSealed) seal = ReadSeal(sent->path, parts[4], header);
  if (!seal.ok()) return seal.status();
  sent->header = std::move(header);
  sent->seal = *std::move(seal);
  return absl::OkStatus();
}

PieceBuffers BuffersFor(const ProcessGroup& group, const SentTensors& sent) {
  const std::vector<SafetensorsTensor>& tensors = sent.header.tensors;
  uint64_t most = 0, most_on_gpu = 0;
  for (size_t first = 0; first < tensors.size();) {
    const size_t last = EndOfPiece(sent, first);
    uint64_t& largest = GoesBetweenGpus(sent, first) ? most_on_gpu : most;
    largest = std::max(largest, tensors[last - 1].end - tensors[first].begin);
    first = last;
  }
  const auto bytes = [](uint64_t count, c10::Device device) {
    return at::empty({static_cast<int64_t>(count)}, at::TensorOptions(at::kByte).device(device));
  };
  return {bytes(most, at::kCPU), most_on_gpu == 0 ? at::Tensor() : bytes(most_on_gpu, *group.nccl_device())};
}

absl::Status VisitSent(ProcessGroup& group, int root, const SentTensors& sent, const PieceBuffers& buffers,
                       VisitTensor visit) {
  const std::vector<SafetensorsTensor>& tensors = sent.header.tensors;
  const bool sends = group.rank() == root;
  char* const memory = static_cast<char*>(buffers.host.mutable_data_ptr());
  const c10::Device device = group.device();
  absl::Status status;
  for (size_t first = 0; first < tensors.size();) {
    const size_t last = EndOfPiece(sent, first);
    const int64_t bytes = static_cast<int64_t>(tensors[last - 1].end - tensors[first].begin);
    if (GoesBetweenGpus(sent, first)) {
      const SafetensorsTensor& tensor = tensors[first];
      // As bytes: NCCL does not know all types.
      const at::Tensor piece = buffers.gpu.slice(0, 0, bytes);
      const at::Tensor value = piece.view(ToScalarType(tensor.dtype)).view(tensor.shape);
      if (sends && status.ok()) {
        status = TorchTry(tensor.name, [&] {
          value.copy_(sent.on_gpu(first));
          return absl::OkStatus();
        });
      }
      DDPRUN_RETURN_IF_ERROR(group.Broadcast(piece, root));
      if (status.ok()) {
        status = TorchTry(tensor.name, [&] {
          visit(first, value);
          return absl::OkStatus();
        });
      }
      first = last;
      continue;
    }
    const auto place = [&](size_t index) { return memory + (tensors[index].begin - tensors[first].begin); };
    if (sends && status.ok()) {
      status = TorchTry(sent.path, [&] {
        for (size_t index = first; index < last; ++index) sent.read(index, place(index));
        return absl::OkStatus();
      });
    }
    if (bytes > 0) {
      at::Tensor piece = buffers.host.slice(0, 0, bytes);
      at::Tensor travelling = piece.to(device);
      DDPRUN_RETURN_IF_ERROR(group.Broadcast(travelling, root));
      if (!sends && !device.is_cpu()) piece.copy_(travelling);
    }
    for (size_t index = first; index < last && status.ok(); ++index) {
      status = VisitOne(sent, !sends, index, absl::string_view(place(index), tensors[index].bytes()), visit);
    }
    first = last;
  }
  return status;
}

}  // namespace ddprun
