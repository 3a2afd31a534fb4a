#ifndef DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_
#define DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_

// Exit codes of the launcher, the server, ddprunctl and workers (docs/troubleshooting.md). Needs no library.
namespace ddprun::worker_contract {

// Exit code of a shell for a process that this signal ended.
constexpr int ExitCodeOfSignal(int signal) { return 128 + signal; }

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;  // wrong flags or environment; nothing was started
// Non-restartable failure: a worker that exits with this code is not restarted, and the launcher exits with it too, so
// that a job script knows not to requeue. EX_CONFIG of sysexits.h.
inline constexpr int kExitNonRestartable = 78;
// One rank fails at one step again and again, so a restart makes no progress. The next code after those of sysexits.h.
inline constexpr int kExitNoProgress = 79;
// The worker's program can't be executed, or was not found: the shell's codes.
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;
// An operator ended the job or removed the node: as if SIGTERM had stopped every launcher.
inline constexpr int kExitStopped = ExitCodeOfSignal(15);

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_EXIT_CODES_H_
