#ifndef DDPRUN_BASE_FILE_LIMIT_H_
#define DDPRUN_BASE_FILE_LIMIT_H_

#include <sys/resource.h>

#include <optional>
#include <string>

// Handles the limit on file descriptors (RLIMIT_NOFILE). A server needs one descriptor per launcher and a store one per
// worker, and the usual soft limit is only 1024.
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

}  // namespace ddprun

#endif  // DDPRUN_BASE_FILE_LIMIT_H_
