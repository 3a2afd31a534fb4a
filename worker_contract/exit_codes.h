#ifndef DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_
#define DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_

namespace ddprun::worker_contract {

// Non-restartable failure: a worker that exits with this code is not restarted, and the launcher exits with it too, so
// that a job script knows not to requeue. EX_CONFIG of sysexits.h.
inline constexpr int kNonRestartable = 78;

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_
