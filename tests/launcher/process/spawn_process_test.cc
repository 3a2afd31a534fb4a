#include "launcher/process/spawn_process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/resolve_program.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

std::string WriteScript(const testing::TempDir& dir, const std::string& content) {
  const std::string path = dir.File("script");
  std::ofstream(path) << content;
  chmod(path.c_str(), 0755);
  return path;
}

TEST(SpawnTest, ExitCodeOrFatalSignal_EachOne_IsReported) {
  const auto expect_end = [](const char* how, int code, ProcessEnd::Kind kind, int exit_code) {
    SCOPED_TRACE(absl::StrCat(how, " ", code));
    const Child child = MustSpawn(RequestFor({TestProgram("end_with"), how, absl::StrCat(code)}));
    const ProcessEnd end = WaitFor(child);
    EXPECT_EQ(end.kind, kind);
    EXPECT_EQ(end.code, code);
    EXPECT_EQ(end.ExitCode(), exit_code);
    EXPECT_EQ(end.pid, child.pid);
  };
  for (int code = 0; code < 256; ++code) expect_end("exit", code, ProcessEnd::Kind::kExited, code);
  const std::set<int> harmless = {SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, 32, 33};
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (harmless.count(signal) == 0) expect_end("signal", signal, ProcessEnd::Kind::kSignaled, 128 + signal);
  }
}

TEST(SpawnTest, Child_ArgumentsAndEnvironment_ArriveUnchanged) {
  SpawnRequest request = RequestFor({TestProgram("tell_state")});
  request.argv = {"other name", "", "with space", "\xff\n"};
  request.argv[1] = "1";
  request.environment = {"ONLY=this one", "EMPTY="};
  const std::string output = OutputOf(request);
  EXPECT_THAT(output, HasSubstr("argument: other name\nargument: 1\nargument: with space\nargument: \xff\n\n"
                                "variable: ONLY=this one\nvariable: EMPTY=\n"));
}

TEST(SpawnTest, Child_FileLimitRaisedByParent_IsTheInheritedOne) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max - 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  RaiseFileLimit();
  EXPECT_EQ(OutputOf(RequestFor({"/bin/sh", "-c", "ulimit -Sn; ulimit -Hn"})),
            absl::StrCat(limit.rlim_cur, "\n", limit.rlim_max, "\n"));
}

TEST(SpawnTest, Child_LeadsItsOwnSessionAndDiesWithItsParent) {
  const auto [child, output] = SpawnTalker(RequestFor({TestProgram("tell_state")}));
  const std::string text = ReadToEnd(output.get());
  EXPECT_TRUE(WaitFor(child).ok());
  EXPECT_THAT(text, HasSubstr(absl::StrCat("pid: ", child.pid, "\nparent: ", getpid(), "\ngroup: ", child.pid,
                                           "\nsession: ", child.pid, "\ndeath signal: 9\n")));
}

TEST(SpawnTest, Child_SignalsBlockedAndIgnoredByParent_AreAtTheirDefaults) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigprocmask(SIG_SETMASK, &blocked, &before);
  struct sigaction ignore {
  }, pipe_before, usr_before;
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before);
  sigaction(SIGUSR1, &ignore, &usr_before);
  const std::string output = OutputOf(RequestFor({TestProgram("tell_state")}));
  EXPECT_THAT(output, HasSubstr("blocked:\nignored:\n"));
  SpawnRequest request = RequestFor({TestProgram("tell_state")});
  request.ignored_signals = {SIGUSR1, SIGUSR2};
  EXPECT_THAT(OutputOf(request), HasSubstr("blocked:\nignored: 10 12\n"));

  // The parent's own signal state is unchanged.
  sigset_t now;
  sigprocmask(SIG_SETMASK, &before, &now);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) EXPECT_EQ(sigismember(&now, signal), 1);
  struct sigaction after;
  sigaction(SIGPIPE, &pipe_before, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
  sigaction(SIGUSR1, &usr_before, nullptr);
}

TEST(SpawnTest, Descriptors_OnlyStandardOnesAndInheritableOnes_ReachTheChild) {
  // Descriptors that the test inherited are passed on, as intended: they can be identified by lacking close-on-exec.
  std::string expected = "fds: 0 1 2";
  for (int fd = 3; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) absl::StrAppend(&expected, " ", fd);
  }
  const Pipe unrelated;
  const Child sleeper = MustSpawn(RequestFor({TestProgram("ignore_term")}));  // its pidfd is another descriptor
  EXPECT_THAT(OutputOf(RequestFor({TestProgram("tell_state")})), HasSubstr(expected + "\n"));

  const UniqueFd inheritable(fcntl(unrelated.read.get(), F_DUPFD, 600));
  EXPECT_THAT(OutputOf(RequestFor({TestProgram("tell_state")})), HasSubstr(expected + " 600\n"));
  kill(sleeper.pid, SIGKILL);
  WaitFor(sleeper);
}

TEST(SpawnTest, StandardStreams_SwappedOutputAndError_ReachTheirTargets) {
  // Descriptors 1 and 2 of the parent become 2 and 1 of the child.
  Pipe out, err;
  const UniqueFd saved_out(dup(STDOUT_FILENO)), saved_err(dup(STDERR_FILENO));
  dup2(out.write.get(), STDOUT_FILENO);
  dup2(err.write.get(), STDERR_FILENO);
  SpawnRequest request = RequestFor({"/bin/sh", "-c", "echo to-out; echo to-err >&2"});
  request.stdout_fd = STDERR_FILENO;
  request.stderr_fd = STDOUT_FILENO;
  const auto child = Spawn(request);
  dup2(saved_out.get(), STDOUT_FILENO);
  dup2(saved_err.get(), STDERR_FILENO);
  ASSERT_TRUE(child.ok()) << child.status();
  WaitFor(*child);
  out.write.reset();
  err.write.reset();
  EXPECT_EQ(ReadToEnd(out.read.get()), "to-err\n");
  EXPECT_EQ(ReadToEnd(err.read.get()), "to-out\n");
}

TEST(SpawnTest, StandardStreams_SameDescriptorForAll_Works) {
  Pipe input, output;
  ASSERT_EQ(write(input.write.get(), "hello\n", 6), 6);
  input.write.reset();
  SpawnRequest request = RequestFor({"/bin/sh", "-c", "cat; echo error >&2"});
  request.stdin_fd = input.read.get();
  request.stderr_fd = output.write.get();
  request.stdout_fd = output.write.get();
  const Child child = MustSpawn(request);
  output.write.reset();
  EXPECT_EQ(ReadToEnd(output.read.get()), "hello\nerror\n");
  WaitFor(child);
}

TEST(SpawnTest, StandardStreams_CloseOnExecInPlace_IsKeptOpen) {
  Pipe output;
  const UniqueFd saved(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  dup3(output.write.get(), STDOUT_FILENO, O_CLOEXEC);
  SpawnRequest request = RequestFor({"/bin/echo", "here"});
  request.stdout_fd = STDOUT_FILENO;
  const auto child = Spawn(request);
  dup2(saved.get(), STDOUT_FILENO);
  ASSERT_TRUE(child.ok()) << child.status();
  output.write.reset();
  EXPECT_EQ(ReadToEnd(output.read.get()), "here\n");
  WaitFor(*child);
}

TEST(SpawnTest, Many_TwoHundredFiftySixAtOnce_AllRunAndEnd) {
  Pipe gate;  // all wait for its end of file
  SpawnRequest request = RequestFor({"/bin/cat"});
  request.stdin_fd = gate.read.get();
  std::vector<Child> children;
  std::set<pid_t> pids;
  for (int i = 0; i < 256; ++i) pids.insert(children.emplace_back(MustSpawn(request)).pid);
  EXPECT_EQ(pids.size(), 256);
  gate.write.reset();
  for (const Child& child : children) EXPECT_TRUE(WaitFor(child).ok());
}

TEST(SpawnTest, Failure_LeavesNoZombieAndNoDescriptor) {
  const auto open_fds = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  const int before = open_fds();
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Spawn(RequestFor({"/no/such/program"})).ok());
  EXPECT_EQ(open_fds(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there is a child left";
}

TEST(SpawnTest, EmptyArguments_AreRefused) {
  SpawnRequest request;
  request.program = "/bin/true";
  EXPECT_TRUE(absl::IsInvalidArgument(CreateChild(request).status()));
}

TEST(SpawnTest, Gate_Closed_ProgramDoesNotRun) {
  const testing::TempDir dir;
  const SpawnRequest request = RequestFor({"/bin/touch", dir.File("ran")});
  for (const int signal : {SIGTERM, SIGKILL}) {
    Pipe unrelated;
    const auto child = CreateChild(request);
    ASSERT_TRUE(child.ok()) << child.status();
    EXPECT_FALSE(WaitReadable(child->pidfd.get(), 10)) << "it did not wait";
    unrelated.write.reset();
    EXPECT_TRUE(WaitReadable(unrelated.read.get())) << "the child holds the pipe";
    kill(child->pid, signal);
    EXPECT_EQ(WaitFor(*child).ExitCode(), 128 + signal);
  }
  auto child = CreateChild(request);
  ASSERT_TRUE(child.ok()) << child.status();
  child->gate = StartGate();
  EXPECT_EQ(WaitFor(*child).Text(), "exited with code 137") << "nobody can open the gate any more";
  EXPECT_EQ(access(dir.File("ran").c_str(), F_OK), -1);
}

TEST(SpawnTest, Gate_Opened_FailureIsReportedOnce) {
  auto child = CreateChild(RequestFor({"/no/such/program"}));
  ASSERT_TRUE(child.ok()) << child.status();
  child->gate.Open();
  EXPECT_EQ(WaitFor(*child).Text(), "exited with code 127");
  EXPECT_EQ(child->gate.TakeError(), ENOENT);
  EXPECT_EQ(child->gate.TakeError(), std::nullopt);
}

TEST(SpawnTest, NotExecutable_HasExitCodeAndReason) {
  const testing::TempDir dir;
  const struct {
    std::string content;  // text of an executable script
    int exit_code;
    const char* reason;
  } kScripts[] = {
      {"echo hello\n", 126, "no #! line"},
      {"", 126, "the file is empty"},
      {"#! /opt/no/python -u\n", 127, "the interpreter '/opt/no/python' of its #! line"},
      {"#!/bin/sh\r\necho\r\n", 127, "carriage return"},
      {std::string("\177ELF\x01\x01\x01 and nonsense", 20), 126, "another architecture"},
  };
  const auto expect = [](const absl::Status& status, int exit_code, const char* reason) {
    EXPECT_EQ(ExitCodeOfStartError(status), exit_code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
  };
  for (const auto& [content, exit_code, reason] : kScripts) {
    expect(Spawn(RequestFor({WriteScript(dir, content)})).status(), exit_code, reason);
  }
  expect(Spawn(RequestFor({"/no/such/program"})).status(), 127, "no such file on this host");
  expect(Spawn(RequestFor({"/usr"})).status(), 126, "it is a directory");
  expect(Spawn(RequestFor({"/bin/true", std::string(1 << 20, 'x')})).status(), 126, "longer than this system allows");
  const std::string script = WriteScript(dir, "#!/bin/sh\n");
  chmod(script.c_str(), 0644);
  expect(Spawn(RequestFor({script})).status(), 126, "chmod +x");
}

TEST(SpawnTest, SpawningThreadEnds_ChildIsKilled) {
  // Documents the behavior of PR_SET_PDEATHSIG, and why CreateChild belongs to the main thread.
  absl::StatusOr<Child> child = absl::UnknownError("");
  std::thread([&child] { child = Spawn(RequestFor({TestProgram("ignore_term")})); }).join();
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(WaitFor(*child).Text(), "killed by SIGKILL (9)");
}

}  // namespace
}  // namespace ddprun::launcher
