#ifndef DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_
#define DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_

namespace ddprun::worker_contract {

// "Starting again is no use": a worker that ends with it is not restarted, and the launcher ends with it too, so that
// a job script knows not to requeue. EX_CONFIG of sysexits.h.
inline constexpr int kNoUseRestarting = 78;

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_
