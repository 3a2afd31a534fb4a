#ifndef DDPRUN_WORKER_RUNTIME_BASE_LAST_WORDS_H_
#define DDPRUN_WORKER_RUNTIME_BASE_LAST_WORDS_H_

#include <string>

#include "absl/status/status.h"

// Reports the error of a worker: a line on stderr, and the launcher's error file (TORCHELASTIC_ERROR_FILE), which the
// failure summary on every node quotes. Thread-safe.
namespace ddprun {

// Writes "rank 1: <message>" to stderr in one write, and to `error_file` unless that is empty. A failure to write the
// file is ignored. The log that HoldLogOfTorch has held is written first.
void ReportWorkerError(int rank, const std::string& error_file, const absl::Status& status);

// From here on, errors that LibTorch logs are held back until this worker fails, unless TORCH_CPP_LOG_LEVEL is set:
// c10d logs each failure of NCCL on each rank, with C++ stacks, although an elastic worker survives it. Call it before
// there are threads. DropHeldLog forgets what is held and returns the number of messages.
void HoldLogOfTorch();
int DropHeldLog();

// After this call, an uncaught exception (for example in a library's thread) leaves a line on stderr and, with the
// stack, in the error file before the process ends with SIGABRT; a crash leaves its stack there
// (worker_contract/crash_report.h). Gloo ends the process with an exception when ranks pass tensors of different sizes;
// the message explains it.
void InstallCrashReporter(int rank);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_LAST_WORDS_H_
