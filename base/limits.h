#ifndef DDPRUN_BASE_LIMITS_H_
#define DDPRUN_BASE_LIMITS_H_

#include <sys/resource.h>

#include <optional>
#include <string>

#include "absl/status/status.h"

// Limits of this process: on file descriptors (RLIMIT_NOFILE; a server needs one descriptor per launcher and a store
// one per worker, and the usual soft limit is 1024), and on processes and threads, which the kernel counts together.
namespace ddprun {

// Raises the soft limit to the hard limit. Call at program start, before other threads exist.
void RaiseFileLimit();

// The limit that this process was started with, if RaiseFileLimit changed it. Started programs get it back, because
// they may use select() or close every descriptor up to the limit. Thread-safe.
std::optional<rlimit> InheritedFileLimit();

// Records that the kernel refused a descriptor (EMFILE, ENFILE), and logs the first occurrence. Thread-safe.
void ReportOutOfFiles();
// True if that has happened in this process. Thread-safe.
bool RanOutOfFiles();

// "out of file descriptors (limit 1024): raise it with 'ulimit -n' ...", for messages. Thread-safe.
std::string OutOfFilesText();

// Explains the errno of a refused process or thread: "too many processes and threads (ulimit -u: 20; pids.max: 100), or
// too little memory; raise the limit". Thread-safe.
std::string ProcessLimitText(int error_number);

// Starts this many threads together, which end at once. ResourceExhausted, naming the limit, if that fails. Call before
// the use of a library that aborts or hangs without its threads, such as gRPC.
absl::Status CheckThreads(int count);

}  // namespace ddprun

#endif  // DDPRUN_BASE_LIMITS_H_
