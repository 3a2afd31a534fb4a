// ddprun.launch and ddprun.elastic_launch, in a Python without PyTorch.
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

constexpr char kHead[] = R"(
import os, signal, sys, time
import ddprun

def add(x, y=1):
    return x + y + int(os.environ["RANK"])

def fail(rank):
    if int(os.environ["RANK"]) == rank: raise ValueError("no such weight")
    time.sleep(100)

def kill_once(x):
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return x, os.environ["TORCHELASTIC_RESTART_COUNT"]

def wait_forever():
    print(f"rank {os.environ['RANK']} waits {os.getpid()} .\n", end="", flush=True)  # one write
    signal.pause()

def save_when_told(caller, writes):
    def save(number, frame):
        open("saved" + os.environ["RANK"], "w").close()
        sys.exit()
    signal.signal(signal.SIGTERM, save)
    ready = f"ready{os.environ['RANK']}"
    open(ready, "w").close()
    if os.environ["RANK"] == "0":
        while not os.path.exists("ready1"): time.sleep(0.01)
        if writes: os.write(1, b"rank 0 waits .\n")
        else: os.kill(caller, signal.SIGALRM)
    time.sleep(1000)

def say_umlaut():
    os.write(1, "\u00c9poch\u00eb\n".encode())

def say():
    print("out of", os.environ["RANK"], flush=True)
    print("err of", os.environ["RANK"], file=sys.stderr)
)";

class PythonLaunchTest : public ::testing::Test {
 protected:
  // Runs this as the main function of a script.
  std::vector<std::string> Command(const std::string& body) const {
    std::string text = std::string(kHead) + "\nif __name__ == '__main__':\n";
    for (absl::string_view line : absl::StrSplit(body, '\n')) absl::StrAppend(&text, "    ", line, "\n");
    std::ofstream(dir_.File("main.py")) << text;
    return {"/usr/bin/env", "python3", dir_.File("main.py")};
  }
  // Returns its stderr.
  std::string ExpectOut(const std::string& body, const std::string& out,
                        std::map<std::string, std::string> more = {}) const {
    std::map<std::string, std::string> environment = environment_;
    environment.merge(more);
    Process python(Command(body), environment);
    EXPECT_EQ(python.Wait(), 0) << python.Err();
    EXPECT_EQ(python.Out(), out) << python.Err();
    return python.Err();
  }

  const std::map<std::string, std::string> environment_ = {
      {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")},
      {"DDPRUN_PROGRAM", std::filesystem::absolute("launcher/ddprun")}};
  const TempDir dir_;
};

TEST_F(PythonLaunchTest, Launch_Results_AreByGlobalRank) {
  for (const char* method : {"spawn", "fork"}) {
    ExpectOut(absl::StrCat("print(ddprun.launch(add, (10,), nproc_per_node=3, start_method='", method, "'))"),
              "{0: 11, 1: 12, 2: 13}\n");
    ExpectOut(absl::StrCat("config = ddprun.LaunchConfig(1, 1, 2, max_restarts=0, start_method='", method, "')\n",
                           "print(ddprun.elastic_launch(config, add)(10, 5))"),
              "{0: 15, 1: 16}\n");
  }
}

TEST_F(PythonLaunchTest, Launch_ProgramWithArguments_Runs) {
  ExpectOut("print(ddprun.launch('sh', ('-c', 'echo rank $RANK'), nproc_per_node=1))", "rank 0\n{}\n");
  ExpectOut("print(ddprun.elastic_launch(ddprun.LaunchConfig(), sys.executable)('-u', '-c', 'print(7)'))", "7\n{}\n");
}

TEST_F(PythonLaunchTest, Launch_WorkerRaises_ChildFailedErrorHasRankAndTraceback) {
  for (const char* method : {"spawn", "fork"}) {
    const std::string err =
        ExpectOut(absl::StrCat("try:\n    ddprun.launch(fail, (1,), nproc_per_node=2, start_method='", method, R"(')
except ddprun.ChildFailedError as error:
    rank, failure = error.get_first_failure()
    print(rank, failure.local_rank, failure.exitcode, failure.pid > 0)
    print("ValueError: no such weight" in str(error), "in fail" in str(error)))"),
                  "1 1 1 True\nTrue True\n");
    EXPECT_THAT(err, HasSubstr("\nfail FAILED\n"));
  }
}

TEST_F(PythonLaunchTest, Launch_WorkerKilled_ResultsAreOfTheLastRound) {
  for (const char* method : {"spawn", "fork"}) {
    ExpectOut(absl::StrCat("print(ddprun.launch(kill_once, (7,), nproc_per_node=2, max_restarts=1, start_method='",
                           method, "'))\n", R"(
try:
    ddprun.launch(kill_once, (7,), nproc_per_node=2, start_method=')",
                           method, R"(')
except ddprun.ChildFailedError as error:
    print(error.get_first_failure()[1].exitcode))"),
              "{0: (7, '1'), 1: (7, '1')}\n-9\n");
  }
}

TEST_F(PythonLaunchTest, Launch_InvalidFlag_RaisesRuntimeError) {
  ExpectOut("try:\n    ddprun.launch(add, (1,), nproc_per_nodes=2)\nexcept RuntimeError as error:\n    print(error)",
            "ddprun exited with 2; its messages tell why\n");
}

TEST_F(PythonLaunchTest, Launch_FunctionWithoutFile_NeedsCloudpickleOrFork) {
  std::filesystem::create_directory(dir_.File("none"));
  std::ofstream(dir_.File("none/cloudpickle.py")) << "raise ImportError('none')\n";
  const std::string call =
      "import ddprun, os, sys\n"
      "sys.path.insert(0, '" +
      dir_.File("none") +
      "')\n"
      "def f(): return 5\n"
      "try:\n    print(ddprun.launch(f, nproc_per_node=2, start_method=sys.argv[1]))\n"
      "except TypeError as error:\n    print(error)\n";
  Process fork({"/usr/bin/env", "python3", "-c", call, "fork"}, environment_);
  EXPECT_EQ(fork.Wait(), 0) << fork.Err();
  EXPECT_EQ(fork.Out(), "{0: 5, 1: 5}\n");
  Process spawn({"/usr/bin/env", "python3", "-c", call, "spawn"}, environment_);
  EXPECT_EQ(spawn.Wait(), 0) << spawn.Err();
  EXPECT_THAT(spawn.Out(), HasSubstr("install cloudpickle, define it in a module, or pass start_method=\"fork\""))
      << spawn.Err();
}

TEST_F(PythonLaunchTest, Launch_Interrupted_StopsWorkersAndPythonContinues) {
  for (const char* method : {"spawn", "fork"}) {
    Process python(
        Command(absl::StrCat("try:\n    ddprun.launch(wait_forever, nproc_per_node=2, start_method='", method,
                             "')\nexcept KeyboardInterrupt:\n    print('interrupted .', flush=True)\n",
                             "print(ddprun.launch(add, (1,)))")),
        environment_);
    ASSERT_TRUE(python.WaitForOut("rank 0 waits")) << python.Err();
    ASSERT_TRUE(python.WaitForOut("rank 1 waits")) << python.Err();
    const std::string out = python.Out();
    const pid_t worker = std::stoi(out.substr(out.find("waits") + 6));
    EXPECT_TRUE(Alive(worker));
    python.Signal(SIGINT);
    EXPECT_EQ(python.Wait(), 0) << python.Err();
    EXPECT_THAT(python.Out(), HasSubstr("interrupted .\n{0: 2}\n"));
    EXPECT_FALSE(Alive(worker));
  }
}

TEST_F(PythonLaunchTest, Launch_PythonKilled_WorkersEnd) {
  for (const char* method : {"spawn", "fork"}) {
    std::map<std::string, std::string> environment = environment_;
    const TempDir temporary;
    environment["TMPDIR"] = temporary.path();
    Process python(Command(absl::StrCat("ddprun.launch(wait_forever, start_method='", method, "')")), environment);
    ASSERT_TRUE(python.WaitForOut(" .")) << python.Err();
    const std::string out = python.Out();
    const pid_t worker = std::stoi(out.substr(out.find("waits") + 6));
    python.Signal(SIGKILL);
    EXPECT_EQ(python.Wait(), 128 + SIGKILL);
    EXPECT_TRUE(Eventually([worker] { return !Alive(worker); }));
    EXPECT_TRUE(Eventually([&] { return std::filesystem::is_empty(temporary.path()); }))
        << std::filesystem::directory_iterator(temporary.path())->path();
  }
}

TEST_F(PythonLaunchTest, Launch_WorkerOutput_GoesToSysStdout) {
  for (const char* method : {"spawn", "fork"}) {
    ExpectOut(absl::StrCat(R"(
import contextlib, io
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    ddprun.launch(say, nproc_per_node=2, start_method=')",
                           method, R"(')
print(sorted(out.getvalue().splitlines()), err.getvalue().count("err of")))"),
              "['[0] out of 0', '[1] out of 1'] 2\n");
  }
}

// An exception between start and end of a job, of whatever origin, leaves `launch` when the workers have ended.
TEST_F(PythonLaunchTest, Launch_ExceptionInPython_WorkersSaveFirst) {
  constexpr char kBody[] = R"(
import contextlib, io
class Raising(io.StringIO):
    def write(self, text):
        if ' waits ' in text: raise EXCEPTION('of write')
        return super().write(text)
def on_alarm(number, frame):
    raise EXCEPTION('of a handler')
signal.signal(signal.SIGALRM, on_alarm)
try:
    with contextlib.redirect_stdout(Raising() if WRITES else io.StringIO()):
        ddprun.launch(save_when_told, (os.getpid(), WRITES), nproc_per_node=2, start_method='METHOD')
except EXCEPTION as error:
    print(error, [os.path.exists(f'saved{rank}') for rank in '01'])
)";
  for (const char* method : {"spawn", "fork"}) {
    for (const char* exception : {"BrokenPipeError", "KeyboardInterrupt", "MemoryError"}) {
      for (const char* writes : {"True", "False"}) {
        const TempDir folder;
        const std::string body =
            absl::StrReplaceAll(absl::StrCat("os.chdir('", folder.path(), "')", kBody),
                                {{"EXCEPTION", exception}, {"METHOD", method}, {"WRITES", writes}});
        ExpectOut(body, absl::StrCat(*writes == 'T' ? "of write" : "of a handler", " [True, True]\n"));
      }
    }
  }
}

TEST_F(PythonLaunchTest, Launch_OutputReaderGone_JobEndsFirst) {
  ExpectOut(R"(
import contextlib
os.chdir(os.path.dirname(os.path.abspath(sys.argv[0])))
read, write = os.pipe()
os.close(read)
try:
    with contextlib.redirect_stdout(os.fdopen(write, 'w', closefd=False)):
        ddprun.launch(save_when_told, (0, True), nproc_per_node=2)
except BrokenPipeError as error:
    print([os.path.exists(f'saved{rank}') for rank in '01']))",
            "[True, True]\n");
}

TEST_F(PythonLaunchTest, Launch_TextNotEncodable_IsEscaped) {
  ExpectOut(R"(
import contextlib
with open(sys.argv[0] + '.out', 'w', encoding='ascii') as out, contextlib.redirect_stdout(out):
    ddprun.launch(say_umlaut)
print(open(sys.argv[0] + '.out').read(), end=''))",
            "\\xc9poch\\xeb\n");
}

}  // namespace
}  // namespace ddprun::testing
