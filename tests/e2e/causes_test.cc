// Ways in which a job fails: on two nodes, the summary of each names rank, host and cause. Real programs, real ends.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/process.h"
#include "base/text.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

enum class Language { kShell, kPython, kProgram };

// Rank 1 runs `script`, in which DIR is a folder and END_WITH the program, while rank 0 waits.
struct Cause {
  const char* name;
  Language language;
  const char* script;
  int code;                           // exit code of the launchers
  std::vector<const char*> expected;  // parts of the summary
  std::vector<const char*> flags = {};
};
void PrintTo(const Cause& cause, std::ostream* out) { *out << cause.name; }

// Without line ends and runs of blanks.
std::string Unwrapped(absl::string_view text) {
  return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
}

constexpr auto kShell = Language::kShell, kPython = Language::kPython, kProgram = Language::kProgram;

const Cause kCauses[] = {
    {"Exception",
     kPython,
     "raise ValueError('the data are bad')",
     1,
     {"message : ValueError: the data are bad traceback : Traceback (most recent call last):", "line 3, in"}},
    {"ExceptionInAThread",
     kPython,
     "import sys, threading\ndef f(): raise ValueError('in a thread')\nt = threading.Thread(target=f)\nt.start()\n"
     "t.join()\nsys.exit(3)",
     3,
     {"message : ValueError: in a thread", "traceback : last lines of stderr:", "Exception in thread"}},
    {"ExceptionThatAHookShows",
     kPython,
     "import sys\nsys.excepthook = lambda *_: print('gone')\nraise ValueError('hooked')",
     1,
     {"message : ValueError: hooked"}},
    {"ExceptionInAsyncio",
     kPython,
     "import asyncio\nasync def step(): raise ValueError('in a task')\n"
     "async def main(): await asyncio.gather(step(), asyncio.sleep(9))\nasyncio.run(main())",
     1,
     {"message : ValueError: in a task", "in step"}},
    {"ExceptionInAPool",
     kPython,
     "import multiprocessing\ndef f(_): raise ValueError('in a child')\n"
     "multiprocessing.get_context('fork').Pool(1).map(f, [1])",
     1,
     {"message : ValueError: in a child", "RemoteTraceback"}},
    {"ExceptionIgnoredInDel",
     kPython,
     "import sys\nclass A:\n  def __del__(self): raise ValueError('ignored')\na = A()\ndel a\nsys.exit('no GPU left')",
     1,
     {"message : last line of stderr: no GPU left"}},
    {"ImportError", kPython, "import no_such_module", 1, {"ModuleNotFoundError: No module named 'no_such_module'"}},
    {"SyntaxError", kPython, "import broken", 1, {"message : SyntaxError: ", "broken.py"}},
    {"ExitWithText",
     kPython,
     "import sys; sys.exit('no GPU left')",
     1,
     {"message : last line of stderr: no GPU left ===="}},
    {"ExitWithTextPreloaded",
     kPython,
     "import sys; sys.exit('no GPU left')",
     1,
     {"last line of stderr: no GPU left"},
     {"--preload=json"}},
    {"Assertion", kPython, "assert 1 + 1 == 3, 'sizes differ'", 1, {"message : AssertionError: sizes differ"}},
    {"ExceptionWithoutText", kPython, "raise ValueError", 1, {"message : ValueError traceback : Traceback"}},
    {"Recursion", kPython, "def f(): f()\nf()", 1, {"message : RecursionError: maximum recursion depth exceeded"}},
    {"KeyboardInterruptByItself", kPython, "raise KeyboardInterrupt", 130, {"KeyboardInterrupt", "SIGINT"}},
    {"Unicode",
     kPython,
     "raise ValueError('caf\\u00e9 \\u4e2d \\udc80 \\x1b[31m')",
     1,
     {"ValueError: caf\xc3\xa9 \xe4\xb8\xad \\udc80 "}},
    {"VeryLongMessage", kPython, "raise ValueError('x' * 10**6)", 1, {"message : ValueError: xxx"}},
    {"DeviceAssertion",
     kPython,
     "raise RuntimeError('CUDA error: device-side assert triggered\\nCUDA kernel errors might be asynchronous')",
     1,
     {"message : RuntimeError: CUDA error: device-side assert triggered"}},
    {"PortInUse",
     kPython,
     "import socket\ns = socket.create_server(('127.0.0.1', 0))\nsocket.create_server(s.getsockname())",
     1,
     {"Address already in use"}},
    {"FullDisk",
     kPython,
     "import os, subprocess\nsubprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k', 'none', 'DIR'], check=True)\n"
     "open('DIR/x', 'w').write('x' * 10**6)",
     1,
     {"message : OSError: [Errno 28] No space left on device"}},
    {"InvalidMemory", kPython, "import ctypes; ctypes.string_at(16)", 139, {"invalid memory access at address 0x10"}},
    {"HangThatWasKilled",
     kPython,
     "from ddprun import worker\nworker.report_progress(7, phase='forward')\nwhile True: pass",
     137,
     {"in phase forward of step 7", "line 5 in <module>"},
     {"--on-hang=restart:0.3"}},
    {"FullDiskOfAProgram", kShell, "exec dd if=/dev/zero of=/dev/full count=1", 1, {"No space left on device"}},
    {"ExitCode", kShell, "exit 5", 5, {"exited with code 5;", "no error file; see the worker's output"}},
    {"ExitCodeAndALine", kShell, "echo need 4 GPUs >&2; exit 5", 5, {"message : last line of stderr: need 4 GPUs"}},
    {"CommandNotFound", kShell, "set -e; no_such_command; echo", 127, {"no_such_command: not found"}},
    {"CommandNotExecutable", kShell, "exec DIR/file", 126, {"Permission denied", "(in shells: can't execute a"}},
    {"Exit127", kShell, "exit 127", 127, {"exited with code 127 (in shells: command not found)"}},
    {"KilledChild", kShell, "sh -c 'kill -9 $$'; exit $?", 137, {"exited with code 137 (in shells: SIGKILL)"}},
    {"ChildInPython", kShell, "python3 -c 'raise ValueError(\"in a child\")'", 1, {"message : ValueError: in a child"}},
    {"UnsetVariable", kShell, "set -u; echo $no_such_variable", 2, {"no_such_variable: parameter not set"}},
    {"Perl", kShell, "exec perl -e 'die \"no data\"'", 255, {"message : no data at -e line 1."}},
    {"Kill", kShell, "kill -KILL $$", 137, {"message : Signal 9 (SIGKILL) received by PID"}},
    {"Terminated", kShell, "kill -TERM $$", 143, {"message : Signal 15 (SIGTERM) received by PID"}},
    {"CpuTime", kShell, "ulimit -S -t 1; while :; do :; done", 152, {"SIGXCPU (limit of CPU time, ulimit -t)"}},
    {"FileSize",
     kShell,
     "ulimit -S -f 1; exec head -c 100000 /dev/zero > DIR/x",
     153,
     {"(limit of file size, ulimit -f)"}},
    {"Throw",
     kShell,
     "exec END_WITH throw 'no weights'",
     134,
     {"message : what(): no weights", "terminate called after throwing an instance of 'std::runtime_error'"}},
    {"AssertionInC", kShell, "exec END_WITH assert -", 134, {"Assertion `number == 1 && \"sizes differ\"' failed."}},
    {"SegmentationFault", kShell, "exec END_WITH signal 11", 139, {"Signal 11 (SIGSEGV) received by PID"}},
    {"StackOverflow", kShell, "ulimit -s 256; exec END_WITH overflow -", 139, {"Signal 11 (SIGSEGV) received by PID"}},
    {"ProgressBarAndColors",
     kShell,
     "printf '\\r 10%%\\r 99%%\\r100%%\\n\\033[31mfatal: no data\\033[0m\\n' >&2; exit 5",
     5,
     {"message : fatal: no data", "\n    100%\n    fatal: no data\n"}},
    {"Flood",
     kShell,
     "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo fatal: x >&2; exit 5",
     5,
     {": fatal: x"}},
    {"ErrorOnStdout", kShell, "echo 'fatal: on stdout'; exit 5", 5, {"no error file; see the worker's output"}},
    {"InAFile", kShell, "echo fatal: x >&2; exit 5", 5, {"message : fatal: x"}, {"--redirects=3", "--log-dir=DIR"}},
    {"InAFileAndShown", kShell, "echo fatal: x >&2; exit 5", 5, {"message : fatal: x"}, {"--tee=3", "--log-dir=DIR"}},
    {"ErrorFileCantBeWritten",
     kShell,
     "ln -s /no/such/folder/file $TORCHELASTIC_ERROR_FILE; exit 5",
     5,
     {"/error.json': No such file or directory; output may be lost"}},
    {"NotShown", kShell, "echo fatal: x >&2; exit 5", 5, {"message : fatal: x"}, {"--local-ranks-filter=7"}},
    {"NoSuchProgram", kProgram, "DIR/none", 127, {"no such file on this host"}},
    {"ProgramNotExecutable", kProgram, "DIR/file", 126, {"it is not executable"}},
};

class CausesTest : public ::testing::TestWithParam<Cause> {
 protected:
  std::string Filled(absl::string_view text) const {
    return absl::StrReplaceAll(
        text, {{"DIR", dir_.path()}, {"END_WITH", std::filesystem::absolute("tests/testbin/end_with").string()}});
  }

  std::vector<std::string> Command(const Cause& cause) const {
    const std::string script = Filled(cause.script);
    if (cause.language == kProgram) return {"--no-python", script};
    if (cause.language == kShell) return {"--no-python", "sh", "-c", "[ $RANK = 1 ] || exec sleep 1000; " + script};
    std::ofstream(dir_.File("broken.py")) << "1 +\n";
    std::ofstream(dir_.File("train.py")) << "import os, signal\nif os.environ['RANK'] == '0': signal.pause()\n"
                                         << script << "\n";
    return {dir_.File("train.py")};
  }

  const TempDir dir_;
};

TEST_P(CausesTest, Summary_EveryNode_NamesRankHostAndCause) {
  const Cause& cause = GetParam();
  const bool in_namespace = absl::StrContains(cause.script, "'mount'");
  if (in_namespace && Process({"/usr/bin/unshare", "-m", "true"}).Wait() != 0) GTEST_SKIP() << "no namespaces";
  std::ofstream(dir_.File("file")) << "text";
  std::vector<std::string> flags = {"launcher/ddprun", "--nnodes=2",
                                    absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()), "--shutdown-timeout=1"};
  for (const char* flag : cause.flags) flags.push_back(Filled(flag));
  for (const std::string& word : Command(cause)) flags.push_back(word);
  if (in_namespace) flags.insert(flags.begin(), {"/usr/bin/unshare", "-m"});
  const std::map<std::string, std::string> environment = {{"PYTHON_EXEC", "python3"},
                                                          {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}};
  Process a(flags, environment), b(flags, environment);
  ExpectEnd({&a, &b}, cause.code);
  for (Process* node : {&a, &b}) {
    const std::string err = node->Err();
    const std::string summary = err.substr(std::min(err.find("FAILED"), err.size()));
    EXPECT_THAT(summary, AllOf(HasSubstr("Root Cause"), HasSubstr("  host      : " + Hostname())));
    // Both nodes fail to start a program.
    const std::string rank = absl::StrCat("rank      : ", cause.language == kProgram ? "" : "1 (local_rank: 0)");
    EXPECT_THAT(summary, HasSubstr(rank));
    for (const char* text : cause.expected) {
      // Long lines are wrapped.
      EXPECT_TRUE(absl::StrContains(summary, text) || absl::StrContains(Unwrapped(summary), text))
          << text << " is missing in\n"
          << err;
    }
    EXPECT_EQ(CleanText(summary), summary);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CausesTest, ::testing::ValuesIn(kCauses),
                         [](const auto& info) { return std::string(info.param.name); });

class TwoNodesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Flags(int node_rank, const std::string& script) const {
    std::ofstream(dir_.File("train.py")) << script;
    return {"--nnodes=2", absl::StrCat("--node-rank=", node_rank), absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_),
            "--shutdown-timeout=1", dir_.File("train.py")};
  }

  const int port_ = FreePort();
  const TempDir dir_;
  const std::map<std::string, std::string> environment_ = {{"PYTHON_EXEC", "python3"}, {"FOLDER", dir_.path()}};
};

// Rank 1 closes its connections some time before its process ends.
TEST_F(TwoNodesTest, Summary_PeerFailsFirst_IsConsequence) {
  constexpr char kScript[] = R"(
import os, select, socket
os.chdir(os.environ["FOLDER"])
if os.environ["RANK"] == "0":
    with socket.socket(socket.AF_UNIX) as peer:
        while peer.connect_ex("socket"): pass
        peer.send(str(os.getpid()).encode())
        peer.recv(1)
        raise RuntimeError("Connection closed by peer")
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("socket")
    listener.listen()
    peer, _ = listener.accept()
    process = os.pidfd_open(int(peer.recv(20)))
    peer.close()
    select.select([process], [], [])
    raise ValueError("the real cause")
)";
  Launcher a(Flags(0, kScript), environment_), b(Flags(1, kScript), environment_);
  ExpectEnd({&a, &b}, 1);
  for (Launcher* node : {&a, &b}) {
    EXPECT_THAT(node->Err(),
                AllOf(HasSubstr("rank      : 1 (local_rank: 0)"), HasSubstr("message   : ValueError: the real cause")));
  }
  EXPECT_THAT(Unwrapped(a.Err()), HasSubstr("Other Failures: [1]:"));
  EXPECT_THAT(a.Err(), HasSubstr("message   : RuntimeError: Connection closed by peer\n"
                                 "  cause     : consequence: lost its peers\n"));
  EXPECT_THAT(b.Err(), Not(HasSubstr("Other Failures")));
}

// The watchdog of PyTorch's NCCL group prints this and ends the process by SIGABRT.
TEST_F(TwoNodesTest, Summary_NcclsWatchdogAbortsFirst_IsConsequence) {
  constexpr char kScript[] = R"(
import os, resource, select, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.chdir(os.environ["FOLDER"])
if os.environ["RANK"] == "0":
    with open("pid.part", "w") as file: file.write(str(os.getpid()))
    os.rename("pid.part", "pid")
    os.mkfifo("fifo")
    open("fifo").read()
    sys.stderr.write("[rank0] Aborting process on rank 0 due to timeout - collective operation timed out\n")
    os.abort()
while not os.path.exists("fifo"): pass
process = os.pidfd_open(int(open("pid").read()))
open("fifo", "w").close()
select.select([process], [], [])
raise ValueError("the real cause")
)";
  Launcher a(Flags(0, kScript), environment_), b(Flags(1, kScript), environment_);
  ExpectEnd({&a, &b}, 1);
  for (Launcher* node : {&a, &b}) EXPECT_THAT(node->Err(), HasSubstr("message   : ValueError: the real cause"));
  EXPECT_THAT(Unwrapped(a.Err()), HasSubstr("ended by NCCL's watchdog: [rank0] Aborting process on rank 0 due to "
                                            "timeout - collective operation timed out"));
  EXPECT_THAT(a.Err(), HasSubstr("cause     : consequence: lost its peers\n"));
}

TEST_F(TwoNodesTest, Summary_WorkerKilledFromOutside_NamesSignal) {
  constexpr char kScript[] = "import os, signal\nprint('pid', os.getpid(), '.')\nsignal.pause()\n";
  Launcher a(Flags(0, kScript), environment_), b(Flags(1, kScript), environment_);
  ASSERT_TRUE(b.WaitForOut(" .")) << b.Err();
  const std::string out = b.Out();
  kill(std::stoi(out.substr(out.find("pid ") + 4)), SIGKILL);
  ExpectEnd({&a, &b}, 128 + SIGKILL);
  for (Launcher* node : {&a, &b}) EXPECT_THAT(node->Err(), HasSubstr("message   : Signal 9 (SIGKILL) received by PID"));
}

// A memory cgroup below that of this process.
class MemoryLimit {
 public:
  explicit MemoryLimit(const std::string& bytes) {
    for (const absl::string_view line : absl::StrSplit(ReadFile("/proc/self/cgroup"), '\n')) {
      const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
      if (fields.size() != 3 || (fields[1] != "memory" && !fields[1].empty())) continue;
      const bool version_1 = !fields[1].empty();
      const std::string folder = absl::StrCat("/sys/fs/cgroup", version_1 ? "/memory" : "", fields[2], "/ddprun-test-",
                                              getpid(), "-", FreePort());
      if (mkdir(folder.c_str(), 0755) != 0) continue;
      folder_ = folder;
      const std::string limit = folder + (version_1 ? "/memory.limit_in_bytes" : "/memory.max");
      if (access(limit.c_str(), W_OK) == 0) {
        std::ofstream(limit) << bytes;
        if (absl::StartsWith(ReadFile(limit), bytes)) return;
      }
      Remove();
    }
  }
  ~MemoryLimit() { Remove(); }
  const std::string& folder() const { return folder_; }  // empty: it can't be made

 private:
  void Remove() {
    // The kernel may still be freeing its processes.
    if (folder_.empty()) return;
    EXPECT_TRUE(Eventually([&] { return rmdir(folder_.c_str()) == 0; })) << folder_;
    folder_.clear();
  }

  std::string folder_;
};

TEST_F(TwoNodesTest, Summary_OutOfMemory_NamesIt) {
  MemoryLimit limit("268435456");
  if (limit.folder().empty()) GTEST_SKIP() << "can't make a memory cgroup";
  constexpr char kScript[] = "import os, signal\nif os.environ['RANK'] == '0': signal.pause()\nx = b'x' * (1 << 30)\n";
  Launcher a(Flags(0, kScript), environment_);
  std::vector<std::string> command = {"/bin/sh", "-c", "echo $$ > $0/cgroup.procs && exec \"$@\"", limit.folder()};
  for (const std::string& word : Launcher::Command("launcher/ddprun", Flags(1, kScript))) command.push_back(word);
  Process b(command, environment_);
  ExpectEnd({&a, &b}, 128 + SIGKILL);
  for (Process* node : {static_cast<Process*>(&a), &b}) {
    EXPECT_THAT(
        Unwrapped(node->Err()),
        AllOf(HasSubstr("killed by SIGKILL (OOM-killed)"), HasSubstr("rank : 1 (local_rank: 0)"),
              HasSubstr("message : out of memory: the kernel killed 1 process(es) of this job's memory cgroup")));
  }
}

}  // namespace
}  // namespace ddprun::testing
