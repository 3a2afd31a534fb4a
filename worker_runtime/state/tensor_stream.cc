#include "worker_runtime/state/tensor_stream.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/safetensors/tensor_bytes.h"

namespace ddprun {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
constexpr char kSealed[] = "sealed";

// Returns the end of the piece that begins with tensor `first`.
size_t EndOfPiece(const std::vector<SafetensorsTensor>& tensors, size_t first) {
  size_t last = first + 1;
  while (last < tensors.size() && tensors[last].end - tensors[first].begin <= kPieceBytes) ++last;
  return last;
}

absl::Status VisitOne(const SentTensors& sent, bool received, size_t index, absl::string_view bytes,
                      VisitTensor visit) {
  const SafetensorsTensor& tensor = sent.header.tensors[index];
  const std::string name = absl::StrCat("tensor \"", OneLine(tensor.name, 120), "\" of ", sent.path);
  if (received && sent.seal && Checksum(bytes) != sent.seal->tensor_checksums[index]) {
    return absl::DataLossError(absl::StrCat(name, " arrived damaged: checksum mismatch"));
  }
  if (absl::Status status = CheckValues(sent.path, tensor, bytes); !status.ok()) return status;
  return TorchTry(name, [&] {
    visit(index, ReadableTensor(tensor, bytes));
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status SendHeader(ProcessGroup& group, int root, const std::string& text, SentTensors* sent) {
  const std::string mine = absl::StrCat(kSafetensorsPrefixBytes + text.size() + sent->header.data_bytes(), "\n",
                                        sent->seal.has_value() ? kSealed : "", "\n", sent->path, "\n", text);
  const absl::StatusOr<std::string> said = group.BroadcastText(group.rank() == root ? mine : "", root);
  if (!said.ok() || group.rank() == root) return said.status();
  const std::vector<std::string> parts = absl::StrSplit(*said, absl::MaxSplits('\n', 3));
  uint64_t file_bytes = 0;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &file_bytes)) {
    return absl::InternalError(absl::StrCat("rank ", root, " sent no header"));
  }
  sent->path = parts[2];
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(sent->path, parts[3], file_bytes);
  if (!header.ok()) return header.status();
  absl::StatusOr<std::optional<Seal>> seal = std::optional<Seal>();
  if (parts[1] == kSealed) seal = ReadSeal(sent->path, parts[3], *header);
  if (!seal.ok()) return seal.status();
  sent->header = *std::move(header);
  sent->seal = *std::move(seal);
  return absl::OkStatus();
}

at::Tensor BufferFor(const SafetensorsHeader& header) {
  uint64_t most = 0;
  for (size_t first = 0; first < header.tensors.size();) {
    const size_t last = EndOfPiece(header.tensors, first);
    most = std::max(most, header.tensors[last - 1].end - header.tensors[first].begin);
    first = last;
  }
  return at::empty({static_cast<int64_t>(most)}, at::TensorOptions().dtype(at::kByte));
}

absl::Status VisitSent(ProcessGroup& group, int root, const SentTensors& sent, const at::Tensor& buffer,
                       VisitTensor visit) {
  const std::vector<SafetensorsTensor>& tensors = sent.header.tensors;
  const bool sends = group.rank() == root;
  char* const memory = static_cast<char*>(buffer.mutable_data_ptr());
  const c10::Device device = group.device();
  absl::Status status;
  for (size_t first = 0; first < tensors.size();) {
    const size_t last = EndOfPiece(tensors, first);
    const auto place = [&](size_t index) { return memory + (tensors[index].begin - tensors[first].begin); };
    if (sends && status.ok()) {
      status = TorchTry(sent.path, [&] {
        for (size_t index = first; index < last; ++index) sent.read(index, place(index));
        return absl::OkStatus();
      });
    }
    const int64_t bytes = static_cast<int64_t>(tensors[last - 1].end - tensors[first].begin);
    if (bytes > 0) {
      at::Tensor piece = buffer.slice(0, 0, bytes);
      at::Tensor travelling = piece.to(device);
      if (absl::Status sent_now = group.Broadcast(travelling, root); !sent_now.ok()) return sent_now;
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
