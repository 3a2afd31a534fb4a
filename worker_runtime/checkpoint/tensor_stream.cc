#include "worker_runtime/checkpoint/tensor_stream.h"

#include <ATen/Functions.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/checkpoint/checksum.h"
#include "worker_runtime/checkpoint/tensor_bytes.h"
#include "worker_runtime/process_group/agreement.h"

namespace ddprun {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{32} << 20;

// The end of the piece that begins with tensor `first`.
size_t EndOfPiece(const std::vector<SafetensorsTensor>& tensors, size_t first) {
  size_t last = first + 1;
  while (last < tensors.size() && tensors[last].end - tensors[first].begin <= kPieceBytes) ++last;
  return last;
}

// The bytes [begin, end) of the file on this rank, in host memory.
absl::StatusOr<at::Tensor> SendPiece(ProcessGroup& group, const SentFile& sent, size_t first, size_t last) {
  const uint64_t begin = sent.header.tensors[first].begin;
  const int64_t bytes = static_cast<int64_t>(sent.header.tensors[last - 1].end - begin);
  at::Tensor piece;
  if (sent.file != nullptr) {
    // Only read from: the root of a broadcast.
    piece = at::from_blob(const_cast<char*>(sent.file->bytes(sent.header.tensors[first]).data()), {bytes},
                          at::TensorOptions().dtype(at::kByte));
  } else {
    piece = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  }
  if (bytes == 0) return piece;
  const c10::Device device = DeviceOf(group);
  at::Tensor travelling = piece.to(device);
  if (absl::Status status = group.Broadcast(travelling, 0); !status.ok()) return status;
  return travelling.to(c10::DeviceType::CPU);
}

absl::Status VisitOne(const SentFile& sent, size_t index, absl::string_view bytes, VisitTensor visit) {
  const SafetensorsTensor& tensor = sent.header.tensors[index];
  if (sent.seal && Checksum(bytes) != sent.seal->tensor_checksums[index]) {
    return absl::DataLossError(absl::StrCat("tensor \"", OneLine(tensor.name, 120), "\" of rank 0's ", sent.path,
                                            " arrived damaged: checksum mismatch"));
  }
  if (absl::Status status = CheckValues(sent.path, tensor, bytes); !status.ok()) return status;
  // An exception must not end the collective in the middle.
  return TorchTry(absl::StrCat("tensor \"", OneLine(tensor.name, 120), "\" of ", sent.path), [&] {
    visit(index, ReadableTensor(tensor, bytes));
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status VisitFile(const SafetensorsFile& file, VisitTensor visit) {
  const std::vector<SafetensorsTensor>& tensors = file.header().tensors;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const absl::string_view bytes = file.bytes(tensors[index]);
    if (absl::Status status = file.CheckTensor(index); !status.ok()) return status;
    if (absl::Status status = CheckValues(file.path(), tensors[index], bytes); !status.ok()) return status;
    visit(index, ReadableTensor(tensors[index], bytes));
  }
  return absl::OkStatus();
}

absl::Status VisitSentFile(ProcessGroup& group, const SentFile& sent, VisitTensor visit) {
  const std::vector<SafetensorsTensor>& tensors = sent.header.tensors;
  absl::Status status;
  for (size_t first = 0; first < tensors.size();) {
    const size_t last = EndOfPiece(tensors, first);
    const absl::StatusOr<at::Tensor> piece = SendPiece(group, sent, first, last);
    if (!piece.ok()) return piece.status();
    const char* const begin = static_cast<const char*>(piece->const_data_ptr());
    for (size_t index = first; index < last && status.ok(); ++index) {
      const uint64_t offset = tensors[index].begin - tensors[first].begin;
      status = VisitOne(sent, index, absl::string_view(begin + offset, tensors[index].bytes()), visit);
    }
    first = last;
  }
  return status;
}

}  // namespace ddprun
