#ifndef DDPRUN_BASE_FILE_LIMIT_H_
#define DDPRUN_BASE_FILE_LIMIT_H_

#include <sys/resource.h>

#include <optional>
#include <string>

// The number of file descriptors that this process may have (RLIMIT_NOFILE). A server needs one per launcher, a store
// one per worker, and the usual soft limit is 1024.
namespace ddprun {

// Raises the soft limit to the hard one. Call at start, before other threads exist.
void RaiseFileLimit();

// The limit that this process was started with, if RaiseFileLimit has changed it: programs that it starts get it back
// (they may use select(), or close every descriptor up to the limit). Thread-safe.
std::optional<rlimit> InheritedFileLimit();

// Notes that the kernel refused a descriptor (EMFILE, ENFILE), and logs it the first time. Thread-safe.
void ReportOutOfFiles();
// Whether that has happened in this process. Thread-safe.
bool RanOutOfFiles();

// "out of file descriptors (limit 1024): raise it with 'ulimit -n' ...", for messages. Thread-safe.
std::string OutOfFilesText();

}  // namespace ddprun

#endif  // DDPRUN_BASE_FILE_LIMIT_H_
