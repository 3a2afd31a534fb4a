#include "worker_runtime/elastic/core/step_seed.h"

namespace ddprun {
namespace {

// The finalizer of SplitMix64 (Steele et al., Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

}  // namespace

uint64_t StepSeed(uint64_t seed, int64_t step, int rank) {
  uint64_t mixed = Mix(seed + kGamma);
  mixed = Mix(mixed + kGamma * (static_cast<uint64_t>(step) + 1));
  return Mix(mixed + kGamma * (static_cast<uint64_t>(rank) + 1));
}

}  // namespace ddprun
