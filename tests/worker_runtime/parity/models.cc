#include "tests/worker_runtime/parity/models.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <array>

#include "worker_runtime/base/parameters.h"

namespace ddprun::testing {
namespace {

uint32_t UpdateCrc(uint32_t crc, const at::Tensor& tensor) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
      table[byte] = value;
    }
    return table;
  }();
  const at::Tensor contiguous = tensor.detach().contiguous();
  const auto* bytes = static_cast<const uint8_t*>(contiguous.data_ptr());
  crc = ~crc;
  for (size_t i = 0; i < contiguous.nbytes(); ++i) crc = kTable[(crc ^ bytes[i]) & 255] ^ (crc >> 8);
  return ~crc;
}

// Pseudo-random integers below `modulus`.
at::Tensor Numbers(int64_t count, int64_t seed, int64_t modulus) {
  const at::Tensor index = at::arange(count, at::kLong);
  return ((index + seed * 131) * 7919 + (index + seed) * (index + 3) * 31).remainder(modulus);
}

}  // namespace

at::Tensor Cnn::forward(const at::Tensor& x) {
  const at::Tensor hidden = norm(conv(x.view({-1, 5, 4, 4}))).relu();
  return out(at::max_pool2d(hidden, 2).flatten(1)).view({-1, 5, 8});
}

at::Tensor Tied::forward(const at::Tensor& tokens) { return at::linear(hidden(embedding(tokens)).relu(), tied); }

void FillParameters(torch::nn::Module& module) {
  at::NoGradGuard no_grad;
  int64_t seed = 0;
  for (at::Tensor& parameter : Parameters(module)) {
    parameter.copy_(((Numbers(parameter.numel(), ++seed, 2003) - 1001).to(at::kFloat) / 4001).view(parameter.sizes()));
  }
}

uint32_t Checksum(const torch::nn::Module& module) {
  uint32_t crc = 0;
  for (const at::Tensor& parameter : Parameters(module)) crc = UpdateCrc(crc, parameter);
  for (const at::Tensor& buffer : module.buffers()) crc = UpdateCrc(crc, buffer);
  return crc;
}

std::pair<at::Tensor, at::Tensor> FloatBatch(int64_t number) {
  const at::Tensor x = (Numbers(64 * 5 * 16, 2 * number + 1, 997).to(at::kFloat) / 499 - 1).view({64, 5, 16});
  const at::Tensor y = (Numbers(64 * 5 * 8, 2 * number + 2, 997).to(at::kFloat) / 499 - 1).view({64, 5, 8});
  return {x, y};
}

std::pair<at::Tensor, at::Tensor> TokenBatch(int64_t number, int64_t length, int64_t vocabulary) {
  const at::Tensor tokens = Numbers(4 * (length + 1), number, vocabulary).view({4, length + 1});
  return {tokens.narrow(1, 0, length), tokens.narrow(1, 1, length)};
}

}  // namespace ddprun::testing
