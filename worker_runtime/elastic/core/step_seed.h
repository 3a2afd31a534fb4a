#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STEP_SEED_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STEP_SEED_H_

#include <cstdint>

namespace ddprun {

// PURE: seed for the random numbers of one rank's step, so that a repeated step draws the same ones. Differs with each
// of the three arguments. Thread-safe.
uint64_t StepSeed(uint64_t seed, int64_t step, int rank);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STEP_SEED_H_
