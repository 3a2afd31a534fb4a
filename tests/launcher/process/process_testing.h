#ifndef DDPRUN_TESTS_LAUNCHER_PROCESS_PROCESS_TESTING_H_
#define DDPRUN_TESTS_LAUNCHER_PROCESS_PROCESS_TESTING_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/child_watch.h"
#include "launcher/process/spawn_process.h"

namespace ddprun::launcher {

// Long enough for a loaded machine; reaching it means that something hangs.
inline constexpr int kPatienceMillis = 60 * 1000;

// Path of a program of tests/testbin.
std::string TestProgram(const std::string& name);

// A request to start `argv`, whose first word is the program's path, with this process's environment.
SpawnRequest RequestFor(std::vector<std::string> argv);

// Creates a child and waits until it has executed its program. Errors: those of CreateChild, or why the exec failed.
absl::StatusOr<Child> Spawn(const SpawnRequest& request);

// Like Spawn, but aborts on an error.
Child MustSpawn(const SpawnRequest& request);

// A pipe; both ends are close-on-exec.
struct Pipe {
  Pipe();
  UniqueFd read;
  UniqueFd write;
};

// A child whose standard output can be read.
struct Talker {
  Child child;
  UniqueFd output;
};
Talker SpawnTalker(SpawnRequest request);

// Waits for a child and reaps it, without killing anything.
ProcessEnd WaitFor(const Child& child);

// Waits until process `pid` is gone or a zombie; returns false if it stays alive.
bool WaitUntilGone(pid_t pid);

// True if `fd` becomes readable, or its other end is closed, within the timeout.
bool WaitReadable(int fd, int timeout_millis = kPatienceMillis);

// Reads until the other end is closed; aborts on a timeout.
std::string ReadToEnd(int fd);

// Reads "<name> <pid>" lines up to the line `last`; names may repeat. Aborts if `last` does not arrive.
std::multimap<std::string, pid_t> ReadPids(int fd, const std::string& last);

// Runs `request` to its end and returns its standard output. Sets `end` if that is given.
std::string OutputOf(SpawnRequest request, ProcessEnd* end = nullptr);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_PROCESS_PROCESS_TESTING_H_
