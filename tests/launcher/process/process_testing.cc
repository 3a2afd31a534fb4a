#include "tests/launcher/process/process_testing.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/spawn_process.h"

namespace ddprun::launcher {
namespace {

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "%s\n", what.c_str());
  abort();
}

}  // namespace

std::string TestProgram(const std::string& name) {
  const char* sources = getenv("TEST_SRCDIR");
  const char* workspace = getenv("TEST_WORKSPACE");
  if (sources == nullptr || workspace == nullptr) return ".bazel/bin/tests/testbin/" + name;
  return std::string(sources) + "/" + workspace + "/tests/testbin/" + name;
}

SpawnRequest RequestFor(std::vector<std::string> argv) {
  SpawnRequest request;
  request.program = argv[0];
  request.argv = std::move(argv);
  request.environment = OwnEnvironment();
  return request;
}

absl::StatusOr<Child> Spawn(const SpawnRequest& request) {
  DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
  child.gate.Open();
  // The child's end is close-on-exec.
  if (!WaitReadable(child.gate.fd())) Die("a child does not execute its program");
  if (const std::optional<int> error = child.gate.TakeError()) {
    WaitFor(child);
    return ExplainExecError(request.program, *error);
  }
  return child;
}

Child MustSpawn(const SpawnRequest& request) {
  absl::StatusOr<Child> child = Spawn(request);
  if (!child.ok()) Die(child.status().ToString());
  return *std::move(child);
}

Talker SpawnTalker(SpawnRequest request) {
  Pipe output;
  request.stdout_fd = output.write.get();
  return {MustSpawn(request), std::move(output.read)};
}

Pipe::Pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe2");
  read.reset(ends[0]);
  write.reset(ends[1]);
}

ProcessEnd WaitFor(const Child& child) {
  if (!WaitReadable(child.pidfd.get())) Die("a child does not end");
  int status = 0;
  if (waitpid(child.pid, &status, 0) != child.pid) Die("waitpid");
  return ProcessEnd::FromWait(child.pid, status);
}

bool WaitUntilGone(pid_t pid) {
  const UniqueFd pidfd = OpenPidfd(pid);
  return pidfd.valid() ? WaitReadable(pidfd.get()) : errno == ESRCH;
}

bool WaitReadable(int fd, int timeout_millis) {
  pollfd waited{fd, POLLIN, 0};
  int ready;
  do {
    ready = poll(&waited, 1, timeout_millis);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

std::string ReadToEnd(int fd) {
  std::string content;
  std::vector<char> buffer(64 * 1024);
  while (true) {
    if (!WaitReadable(fd)) Die("the writer of a pipe hangs after: " + content);
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return content;
    content.append(buffer.data(), got);
  }
}

std::multimap<std::string, pid_t> ReadPids(int fd, const std::string& last) {
  std::multimap<std::string, pid_t> pids;
  std::string line;
  while (true) {
    char byte;
    if (!WaitReadable(fd) || read(fd, &byte, 1) != 1) Die("no line '" + last + "' came");
    if (byte != '\n') {
      line += byte;
      continue;
    }
    if (line == last) return pids;
    const size_t space = line.find(' ');
    if (space != std::string::npos) pids.emplace(line.substr(0, space), atoi(line.c_str() + space));
    line.clear();
  }
}

std::string OutputOf(SpawnRequest request, ProcessEnd* end) {
  const Talker talker = SpawnTalker(std::move(request));
  std::string content = ReadToEnd(talker.output.get());
  const ProcessEnd ended = WaitFor(talker.child);
  if (end != nullptr) *end = ended;
  return content;
}

}  // namespace ddprun::launcher
