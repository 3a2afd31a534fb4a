#ifndef DDPRUN_BASE_PROCESS_LIMIT_H_
#define DDPRUN_BASE_PROCESS_LIMIT_H_

#include <string>

#include "absl/status/status.h"

// Handles the limits on processes and threads, which the kernel counts together. Thread-safe.
namespace ddprun {

// Explains the errno of a refused process or thread: "too many processes and threads (ulimit -u: 20; pids.max: 100), or
// too little memory; raise the limit".
std::string ProcessLimitText(int error_number);

// Starts this many threads together, which end at once. ResourceExhausted, naming the limit, if that fails. Call before
// the use of a library that aborts or hangs without its threads, such as gRPC.
absl::Status CheckThreads(int count);

}  // namespace ddprun

#endif  // DDPRUN_BASE_PROCESS_LIMIT_H_
