#include "worker_runtime/ddp/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/base/status_macros.h"

namespace ddprun {
namespace {

// Makes the columns of a matrix [1, rows, columns] orthonormal, in place, with the same operations as Python.
void Orthogonalize(at::Tensor matrix, double epsilon) {
  const int64_t columns = matrix.size(2);
  const bool half = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  if (columns > 2 && !half) {
    at::Tensor r = at::empty({1, columns, columns}, matrix.options());
    at::linalg_qr_out(matrix, r, matrix);
    return;
  }
  for (int64_t i = 0; i < columns; ++i) {
    const at::Tensor column = matrix.narrow(2, i, 1);
    at::Tensor norm = at::linalg_vector_norm(column, 2, /*dim=*/1, /*keepdim=*/true);
    if (epsilon != 0) norm = norm + epsilon;
    column.div_(norm);
    if (i + 1 == columns) continue;
    const at::Tensor rest = matrix.narrow(2, i + 1, columns - i - 1);
    rest.sub_(at::sum(column * rest, /*dim=*/1, /*keepdim=*/true) * column);
  }
}

// Groups gradients by shape, in the order in which shapes first appear, as Python does.
std::vector<at::Tensor> ByShape(const std::vector<at::Tensor>& matrices) {
  std::vector<at::Tensor> sorted;
  std::vector<bool> taken(matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    for (size_t j = i; j < matrices.size(); ++j) {
      if (taken[j] || matrices[j].sizes() != matrices[i].sizes()) continue;
      taken[j] = true;
      sorted.push_back(matrices[j]);
    }
  }
  return sorted;
}

absl::Status Invalid(const char* option, const char* rule) {
  return absl::InvalidArgumentError(absl::StrCat("PowerSgdOptions: ", option, " must be ", rule));
}

}  // namespace

absl::StatusOr<std::shared_ptr<PowerSgd>> PowerSgd::Create(const PowerSgdOptions& options) {
  if (options.matrix_approximation_rank < 1) return Invalid("matrix_approximation_rank", ">= 1");
  if ((options.use_error_feedback || options.warm_start) && options.start_power_sgd_iter < 2) {
    return Invalid("start_power_sgd_iter", ">= 2 with use_error_feedback or warm_start");
  }
  return std::shared_ptr<PowerSgd>(new PowerSgd(options));
}

CommHook PowerSgd::Hook() {
  CommHook compressed = SynchronousHook(
      "power_sgd", [this](const GradBucket& bucket, ProcessGroup& group) { return Reduce(bucket, group); });
  return {.name = compressed.name,
          .run = [self = shared_from_this(), plain = AllReduceHook(), compressed](const GradBucket& bucket,
                                                                                  ProcessGroup& group) {
            const bool compress = self->iteration_ >= self->options_.start_power_sgd_iter;
            if (bucket.is_last()) ++self->iteration_;
            return (compress ? compressed : plain).run(bucket, group);
          }};
}

absl::Status PowerSgd::AllReduce(const at::Tensor& tensor, ProcessGroup& group) {
  if (tensor.numel() == 0) return absl::OkStatus();
  stats_.bytes_after += static_cast<int64_t>(tensor.nbytes());
  return group.AllReduce(tensor);
}

int64_t PowerSgd::RankOf(const at::Tensor& matrix) const {
  return std::min({matrix.size(-2), matrix.size(-1), options_.matrix_approximation_rank});
}

bool PowerSgd::ShouldCompress(const at::Tensor& gradient) const {
  if (gradient.dim() == 0 || gradient.numel() == 0) return false;
  const at::Tensor matrix = gradient.view({gradient.size(0), -1});
  const int64_t compressed = (matrix.size(0) + matrix.size(1)) * RankOf(matrix);
  return static_cast<double>(compressed) * options_.min_compression_rate < static_cast<double>(matrix.numel());
}

std::vector<at::Tensor> PowerSgd::Factors(const at::Tensor& flat, const std::vector<at::Tensor>& matrices,
                                          int dim) const {
  std::vector<at::Tensor> factors;
  int64_t offset = 0;
  for (const at::Tensor& matrix : matrices) {
    const int64_t rows = matrix.size(dim), rank = RankOf(matrix);
    factors.push_back(flat.narrow(0, offset, rows * rank).view({1, rows, rank}));
    offset += rows * rank;
  }
  return factors;
}

// numpy.random.RandomState(seed).randint(1_000_000_000).
uint64_t PowerSgd::NextSeed() {
  constexpr uint32_t kEnd = 1'000'000'000, kMask = (1u << 30) - 1;
  while (true) {
    const uint32_t value = static_cast<uint32_t>(random_()) & kMask;
    if (value < kEnd) return value;
  }
}

absl::Status PowerSgd::Reduce(const GradBucket& bucket, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const at::Tensor& buffer = bucket.buffer();
  Memory& memory = memory_[bucket.index()];
  at::Tensor input;
  if (options_.use_error_feedback) {
    if (memory.error.defined()) buffer.add_(memory.error);
    input = buffer.clone();
  }
  stats_.bytes_before += static_cast<int64_t>(buffer.nbytes());

  std::vector<at::Tensor> matrices, uncompressed;
  for (const at::Tensor& gradient : bucket.gradients()) {
    if (ShouldCompress(gradient)) {
      matrices.push_back(gradient.view({1, gradient.size(0), -1}));
    } else {
      uncompressed.push_back(gradient.view(-1));
    }
  }
  matrices = ByShape(matrices);

  const bool randomize = !options_.warm_start || !memory.q.defined();
  if (randomize) {
    int64_t p_length = 0, q_length = 0;
    for (const at::Tensor& matrix : matrices) {
      p_length += matrix.size(1) * RankOf(matrix);
      q_length += matrix.size(2) * RankOf(matrix);
    }
    memory.p = at::empty({p_length}, buffer.options());
    memory.q = at::empty({q_length}, buffer.options());
  }
  const std::vector<at::Tensor> ps = Factors(memory.p, matrices, 1), qs = Factors(memory.q, matrices, 2);
  if (randomize) {
    // A separate generator does not disturb the trainer's random numbers. All ranks draw the same numbers.
    const at::Generator generator = at::detail::createCPUGenerator(NextSeed());
    for (const at::Tensor& q : qs) {
      q.copy_(at::randn(q.sizes(), generator, at::TensorOptions().dtype(q.scalar_type())));
    }
  }
  for (size_t i = 0; i < matrices.size(); ++i) {
    Orthogonalize(qs[i], options_.orthogonalization_epsilon);
    at::Tensor p = ps[i];
    at::bmm_out(p, matrices[i], qs[i]);
  }

  if (!uncompressed.empty()) {
    const at::Tensor flat = at::cat(uncompressed);
    DDPRUN_RETURN_IF_ERROR(AllReduce(flat, group));
    flat.div_(group.size());
    int64_t offset = 0;
    for (const at::Tensor& gradient : uncompressed) {
      gradient.copy_(flat.narrow(0, offset, gradient.numel()));
      offset += gradient.numel();
    }
  }
  // The sum, not the average, as its columns are normalized next.
  DDPRUN_RETURN_IF_ERROR(AllReduce(memory.p, group));
  for (size_t i = 0; i < matrices.size(); ++i) {
    Orthogonalize(ps[i], options_.orthogonalization_epsilon);
    at::Tensor q = qs[i];
    at::bmm_out(q, matrices[i].transpose(1, 2), ps[i]);
  }
  DDPRUN_RETURN_IF_ERROR(AllReduce(memory.q, group));
  memory.q.div_(group.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    at::bmm_out(matrices[i], ps[i], qs[i].transpose(1, 2));
  }
  if (options_.use_error_feedback) memory.error = input - buffer;
  return absl::OkStatus();
}

}  // namespace ddprun
