#include "worker_runtime/data/random_permutation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace ddprun {
namespace {

// From this size on PyTorch draws 64 bits for each place, so that the remainder stays sufficiently uniform, and builds
// the permutation from the inside out.
constexpr uint64_t kLarge = std::numeric_limits<uint32_t>::max() / 20;

// Places drawn ahead: enough to hide a cache miss, few enough to stay in the cache.
constexpr size_t kAhead = 64;

// Calls exchange(place, partner_of(place)) for each of the first `count` places of `out`.
template <typename Number, typename PartnerOf, typename Exchange>
void ForEachPlace(absl::Span<Number> out, size_t count, PartnerOf partner_of, Exchange exchange) {
  size_t partner[kAhead];
  for (size_t begin = 0; begin < count; begin += kAhead) {
    const size_t some = std::min(kAhead, count - begin);
    for (size_t i = 0; i < some; ++i) {
      partner[i] = partner_of(begin + i);
      __builtin_prefetch(&out[partner[i]], /*rw=*/1);
    }
    for (size_t i = 0; i < some; ++i) exchange(begin + i, partner[i]);
  }
}

template <typename Number>
void Fill(uint64_t seed, absl::Span<Number> out) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  const size_t size = out.size();
  if (size >= kLarge) {
    const auto partner_of = [&](size_t place) {
      const uint64_t high = engine();
      return (high << 32 | engine()) % (place + 1);
    };
    ForEachPlace(out, size, partner_of, [&](size_t place, size_t partner) {
      out[place] = out[partner];
      out[partner] = static_cast<Number>(place);
    });
  } else if (size > 0) {
    std::iota(out.begin(), out.end(), Number{0});
    const auto partner_of = [&](size_t place) {
      return place + static_cast<uint32_t>(engine()) % static_cast<uint32_t>(size - place);
    };
    ForEachPlace(out, size - 1, partner_of, [&](size_t place, size_t partner) { std::swap(out[place], out[partner]); });
  }
}

}  // namespace

void RandomPermutation(uint64_t seed, absl::Span<uint32_t> out) { Fill(seed, out); }
void RandomPermutation(uint64_t seed, absl::Span<uint64_t> out) { Fill(seed, out); }

}  // namespace ddprun
