#include "worker_runtime/ddp/shared_memory_all_reduce.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_runtime/process_group/agreement.h"

namespace ddprun {
namespace {

constexpr size_t kMultiple = 256;
// From this many ranks on, it is less work to sum one part each and copy the others' results.
constexpr int kRanksThatShareTheWork = 3;

absl::Status CheckTensor(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    return absl::InvalidArgumentError("the shared-memory all-reduce supports only contiguous CPU tensors");
  }
  if (!SharedMemoryAllReduce::Supports(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shared-memory all-reduce supports float, double, half and "
                     "bfloat16, not ",
                     c10::toString(dtype)));
  }
  return absl::OkStatus();
}

}  // namespace

bool SharedMemoryAllReduce::Supports(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

absl::StatusOr<std::shared_ptr<SharedMemoryAllReduce>> SharedMemoryAllReduce::Create(
    std::shared_ptr<ProcessGroup> group, size_t bytes_per_rank) {
  if (bytes_per_rank == 0 || bytes_per_rank % kMultiple != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes_per_rank is ", bytes_per_rank, ", but must be a multiple of ", kMultiple));
  }
  absl::StatusOr<std::unique_ptr<SharedSegment>> segment = absl::UnknownError("");
  if (group->rank() == 0) segment = SharedSegment::Make(group->size(), bytes_per_rank);
  DDPRUN_ASSIGN_OR_RETURN(std::string address,
                          group->BroadcastText(group->rank() == 0 && segment.ok() ? (*segment)->address() : "", 0));
  if (group->rank() != 0) segment = SharedSegment::Open(address, group->rank());
  DDPRUN_RETURN_IF_ERROR(OutcomeOfAll(group.get(), segment.status()));
  (*segment)->CloseAddress();
  return std::shared_ptr<SharedMemoryAllReduce>(new SharedMemoryAllReduce(std::move(group), *std::move(segment)));
}

absl::Status SharedMemoryAllReduce::AllReduce(at::Tensor tensor, double factor) {
  DDPRUN_RETURN_IF_ERROR(CheckTensor(tensor));
  at::NoGradGuard no_grad;
  const at::Tensor flat = tensor.view({-1});
  const int64_t piece = static_cast<int64_t>(segment_->slot_bytes() / 2 / tensor.element_size());
  for (int64_t begin = 0; begin < flat.numel(); begin += piece) {
    const int64_t count = std::min(piece, flat.numel() - begin);
    DDPRUN_RETURN_IF_ERROR(ReducePiece(flat.narrow(0, begin, count), factor));
  }
  return absl::OkStatus();
}

// The other half is free for the next piece once all ranks have met for this one: a rank that meets has finished
// reading it.
absl::Status SharedMemoryAllReduce::ReducePiece(const at::Tensor& piece, double factor) {
  const int64_t count = piece.numel();
  const int rank = segment_->rank(), size = segment_->size();
  at::Tensor own = SlotAs(rank, piece, 0, count);
  if (factor == 1) {
    own.copy_(piece);
  } else {
    at::mul_out(own, piece, c10::scalar_to_tensor(factor));
  }
  DDPRUN_RETURN_IF_ERROR(EnterBarrier());
  if (size < kRanksThatShareTheWork) {
    SumSlots(piece, 0, count);
  } else {
    // No other rank reads this rank's part of its own slot, so the sum can be stored there.
    const auto begin_of = [count, size](int part) { return count * part / size; };
    const int64_t begin = begin_of(rank), length = begin_of(rank + 1) - begin;
    at::Tensor part = piece.narrow(0, begin, length);
    SumSlots(part, begin, length);
    SlotAs(rank, piece, begin, length).copy_(part);
    DDPRUN_RETURN_IF_ERROR(EnterBarrier());
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const int64_t from = begin_of(other), part_length = begin_of(other + 1) - from;
      piece.narrow(0, from, part_length).copy_(SlotAs(other, piece, from, part_length));
    }
  }
  half_ = 1 - half_;
  return absl::OkStatus();
}

absl::Status SharedMemoryAllReduce::EnterBarrier() {
  // An empty operation, which fails if the group was aborted or another of its operations failed.
  const auto usable = [this] { return group_->Try("shared-memory all-reduce", [] { return absl::OkStatus(); }); };
  return segment_->EnterBarrier(group_->timeout(), usable);
}

at::Tensor SharedMemoryAllReduce::SlotAs(int rank, const at::Tensor& like, int64_t begin, int64_t count) const {
  std::byte* const start = segment_->slot(rank) + half_ * (segment_->slot_bytes() / 2) + begin * like.element_size();
  return at::from_blob(start, {count}, like.options().requires_grad(false));
}

void SharedMemoryAllReduce::SumSlots(at::Tensor target, int64_t begin, int64_t count) const {
  if (count == 0) return;
  const int size = segment_->size();
  if (size == 1) {
    target.copy_(SlotAs(0, target, begin, count));
    return;
  }
  at::add_out(target, SlotAs(0, target, begin, count), SlotAs(1, target, begin, count));
  for (int rank = 2; rank < size; ++rank) target.add_(SlotAs(rank, target, begin, count));
}

CommHook SharedMemoryAllReduce::Hook() {
  return SynchronousHook("shared_memory_allreduce",
                         [shared = shared_from_this()](const GradBucket& bucket, ProcessGroup&) -> absl::Status {
                           return shared->AllReduce(bucket.buffer(), 1.0 / shared->segment_->size());
                         });
}

}  // namespace ddprun
