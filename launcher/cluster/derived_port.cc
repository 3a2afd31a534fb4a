#include "launcher/cluster/derived_port.h"

#include <numeric>

namespace ddprun::launcher {
namespace {

constexpr double kGoldenRatio = 0.6180339887498949;  // (sqrt(5) - 1) / 2
constexpr double kSquareRoot = 0.41421356237309515;  // sqrt(2) - 1

// Smallest number from about `share` * n on that is coprime to n, so that n steps reach every port.
uint64_t Stride(uint64_t n, double share) {
  uint64_t stride = 1 + static_cast<uint64_t>(share * static_cast<double>(n - 1));
  while (std::gcd(stride, n) != 1) ++stride;
  return stride;
}

}  // namespace

int DerivedPort(uint32_t job, uint32_t step, int restart, const std::optional<PortRange>& range) {
  const PortRange ports = range.value_or(kDerivedPorts);
  const uint64_t n = ports.last - ports.first + 1;
  const uint64_t place = job * Stride(n, kGoldenRatio) + restart * Stride(n, kSquareRoot) + step;
  return ports.first + static_cast<int>(place % n);
}

int DerivedPort(absl::string_view job, const std::optional<PortRange>& range) {
  uint32_t hash = 2166136261;  // FNV-1a, which is the same in every launcher
  for (const char byte : job) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619;
  return DerivedPort(hash, 0, 0, range);
}

}  // namespace ddprun::launcher
