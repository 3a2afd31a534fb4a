#include "worker_runtime/data/random_permutation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace ddprun {
namespace {

// From this size on PyTorch draws 64 bits for each place, so that the remainder stays even enough.
constexpr uint64_t kWideDraws = std::numeric_limits<uint32_t>::max() / 20;

// Places drawn ahead: enough to hide a cache miss, few enough to stay in the cache.
constexpr size_t kAhead = 64;

template <typename Number, typename Draw>
void Shuffle(absl::Span<Number> out, Draw draw) {
  std::iota(out.begin(), out.end(), Number{0});
  size_t partner[kAhead];
  for (size_t begin = 0; begin + 1 < out.size(); begin += kAhead) {
    const size_t count = std::min(kAhead, out.size() - 1 - begin);
    for (size_t i = 0; i < count; ++i) {
      partner[i] = begin + i + draw(out.size() - begin - i);
      __builtin_prefetch(&out[partner[i]], /*rw=*/1);
    }
    for (size_t i = 0; i < count; ++i) std::swap(out[begin + i], out[partner[i]]);
  }
}

template <typename Number>
void Fill(uint64_t seed, absl::Span<Number> out) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  if (out.size() < kWideDraws) {
    Shuffle(out, [&engine](size_t rest) { return static_cast<uint32_t>(engine()) % static_cast<uint32_t>(rest); });
  } else {
    Shuffle(out, [&engine](size_t rest) {
      const uint64_t high = engine();
      return (high << 32 | engine()) % rest;
    });
  }
}

}  // namespace

void RandomPermutation(uint64_t seed, absl::Span<uint32_t> out) { Fill(seed, out); }
void RandomPermutation(uint64_t seed, absl::Span<uint64_t> out) { Fill(seed, out); }

}  // namespace ddprun
