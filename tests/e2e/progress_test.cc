// Progress that workers report, with real launchers and Python workers: the worker link, --progress, and what is done
// about hung and slow workers.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// The worker link, spoken with Python's standard library alone. Sections are those of docs/worker_protocol.md.

constexpr char kSpeak[] = R"(
import json, os, signal, socket, sys

def connect():
    link = socket.socket(socket.AF_UNIX)
    link.connect("\0" + os.environ["DDPRUN_WORKER_LINK"][1:])
    tell(link, type="hello", version=1, rank=rank, local_rank=int(os.environ["LOCAL_RANK"]), pid=os.getpid())
    return link

def tell(link, **fields):
    link.sendall(json.dumps(fields).encode() + b"\n")

rank = int(os.environ["RANK"])
)";
constexpr char kReport[] = R"(
tell(link, type="progress", step=120, phase="backward", loss=2.5)
)";

class WorkerLinkTest : public PythonWorkersTest {
 protected:
  WorkerLinkTest() { head_ = kSpeak; }
};

TEST_F(WorkerLinkTest, Section3_2_WorkerFails_LogAndSummaryHaveProgress) {
  Finished launcher = Run(3, 2, {},
                          absl::StrCat(R"(
link = connect()
if rank == 0:
    tell(link, type="progress", step=121)
    signal.pause()
)",
                                       kReport, "sys.exit(3)\n"));
  const std::string err = launcher.Err();
  EXPECT_THAT(err, HasSubstr("exited with code 3; last reported step 120, phase backward, loss 2.5, ")) << err;
  EXPECT_THAT(err, HasSubstr("  progress  : last reported step 120, phase backward, loss 2.5, ")) << err;
  EXPECT_THAT(err, Not(HasSubstr("step 121"))) << "the other one was only stopped";
}

TEST_F(WorkerLinkTest, Section3_2_WorkerFails_EveryNodesSummaryHasProgress) {
  const int port = FreePort();
  std::vector<std::string> flags = {"--nnodes=2", "--nproc-per-node=1",
                                    absl::StrCat("--rdzv-endpoint=127.0.0.1:", port),
                                    Script(absl::StrCat("link = connect()\n", kReport,
                                                        "signal.pause() if rank == 0 else os.kill(os.getpid(), 9)\n"))};
  Launcher a(flags, environment_), b(flags, environment_);
  ExpectEnd({&a, &b}, 128 + SIGKILL);
  for (const std::string& err : {a.Err(), b.Err()}) {
    EXPECT_THAT(err, AllOf(HasSubstr("rank      : 1 "), HasSubstr("  progress  : last reported step 120"))) << err;
  }
}

TEST_F(WorkerLinkTest, Section2_4_InvalidLinesAndFloods_CloseConnectionsOnly) {
  Finished launcher = Run(0, 3, {}, R"(
link = connect()
line = {0: b"rubbish\n", 1: b"x" * 5000, 2: b'{"type":"progress","step":1}\n' * 100}[rank]
try:
    while True: link.sendall(line)
except OSError:
    print("closed .", flush=True)
)");
  EXPECT_EQ(Count(launcher.Out(), "closed ."), 3);
  const std::string err = launcher.Err();
  EXPECT_EQ(Count(err, "worker link: closed the connection of process "), 3) << err;
  EXPECT_THAT(err, AllOf(HasSubstr("(rank 0): a line is not a JSON object\n"),
                         HasSubstr("(rank 1): a line is longer than 4096 bytes\n"),
                         HasSubstr("(rank 2): it sends more than 1000 lines a second\n")));
}

TEST_F(WorkerLinkTest, Section2_3_ChildHoldsSocket_ExitIsNotDelayed) {
  Finished launcher = Run(3, 1, {}, absl::StrCat("link = connect()\n", kReport, R"(
if os.fork() == 0:
    os.setsid()
    signal.pause()
sys.exit(3)
)"));
  EXPECT_THAT(launcher.Err(), HasSubstr("last reported step 120")) << launcher.Err();
}

// --progress, on a terminal and without one.

// Runs until the file in the first argument exists, or for that many hundredths of a second.
constexpr char kReportUntilTold[] = R"(
import os, sys, time
from ddprun import worker

step = 0
while not os.path.exists(sys.argv[1]) and not (sys.argv[1].isdigit() and step > int(sys.argv[1])):
    worker.report_progress(step, phase="forward", loss=1.5)
    if step % 50 == 0: print(f"worker at {step}.\n", end="", flush=True)  # in one piece
    time.sleep(0.01)
    step += 1
)";

class ProgressTest : public PythonWorkersTest {
 protected:
  ProgressTest() { environment_["TERM"] = "xterm"; }
  std::vector<std::string> Command(std::vector<std::string> flags, const std::string& argument) const {
    std::vector<std::string> command =
        Launcher::Command("launcher/ddprun", Flags(2, std::move(flags), kReportUntilTold));
    command.push_back(argument);
    return command;
  }
  // Runs the command on a terminal of 24 rows, whose output is the process's standard output.
  std::vector<std::string> OnTerminal(std::vector<std::string> flags, const std::string& argument) const {
    return {"/usr/bin/script", "-qec",
            absl::StrCat("stty rows 24 cols 100; exec ", absl::StrJoin(Command(std::move(flags), argument), " ")),
            "/dev/null"};
  }
};

TEST_F(ProgressTest, Progress_Terminal_UsesLastRowAndRestoresIt) {
  if (access("/usr/bin/script", X_OK) != 0) GTEST_SKIP() << "there is no script(1)";
  Process terminal(OnTerminal({}, dir_.File("end")), environment_);
  // The row is excluded from scrolling, and written with the cursor restored.
  ASSERT_TRUE(terminal.WaitForOut("\033[1;23r")) << terminal.Out();
  ASSERT_TRUE(terminal.WaitForOut("\0337\033[24;1H\033[Kddprun: step ")) << terminal.Out();
  ASSERT_TRUE(terminal.WaitForOut(" steps/s, loss 1.5, phase forward")) << terminal.Out();
  Touch(dir_.File("end"));
  EXPECT_EQ(terminal.Wait(), 0) << terminal.Out();
  const std::string out = terminal.Out();
  const size_t last = out.rfind("ddprun: step ");
  EXPECT_THAT(out.substr(last), HasSubstr("\0337\033[1;24r\033[24;1H\033[K\0338"));
  EXPECT_GE(Count(out, "worker at 50.\r\n"), 2) << out;
}

TEST_F(ProgressTest, Progress_NoTerminal_PrintsLinesOnlyWithFlag) {
  Process lines(Command({"--progress"}, dir_.File("end")), environment_);
  Process quiet(Command({}, "120"), environment_);
  Process off(OnTerminal({"--progress=off"}, "120"), environment_);
  ASSERT_TRUE(lines.WaitForErr("ddprun: step ")) << lines.Err();
  EXPECT_TRUE(lines.WaitForErr("phase forward")) << lines.Err();
  EXPECT_FALSE(absl::StrContains(lines.Err(), "\033")) << lines.Err();
  Touch(dir_.File("end"));
  ExpectEnd({&lines, &quiet});
  EXPECT_EQ(quiet.Err(), "");
  if (access("/usr/bin/script", X_OK) != 0) return;
  EXPECT_EQ(off.Wait(), 0) << off.Out();
  EXPECT_TRUE(absl::StrContains(off.Out(), "worker at 100.")) << off.Out();
  EXPECT_FALSE(absl::StrContains(off.Out(), "step")) << off.Out();
}

// Hung and slow workers.

// Steps in which the ranks wait for each other in backward.
constexpr char kTrain[] = R"(
import mmap, os, signal, struct, time
from ddprun import worker

rank, world, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
file = os.open(os.path.join(os.environ["MEETING"], os.environ["DDPRUN_ROUND"]), os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 8 * world)
made = mmap.mmap(file, 8 * world)

def wait_in_backward(step):
    struct.pack_into("q", made, 8 * rank, step + 1)
    while min(struct.unpack_from(f"{world}q", made)) <= step:
        time.sleep(0.001)

def train(steps, forward, after=lambda step: None):
    for step in range(steps):
        worker.report_progress(step, phase="forward")
        forward(step)
        worker.report_progress(step, phase="backward")
        wait_in_backward(step)
        worker.report_progress(step, phase="optimizer")
        time.sleep(0.005)
        after(step)

)";

class HangTest : public PythonWorkersTest {
 protected:
  HangTest() {
    head_ = kTrain;
    environment_["PET_SHUTDOWN_TIMEOUT"] = "0.2";
    environment_["MEETING"] = dir_.path();
  }
};

TEST_F(HangTest, Hang_BusyRank_IsNamedWithItsStack) {
  Launcher launcher = Start(3, {}, R"(
def compute_for_ever():
    while True: pass

def forward(step):
    time.sleep(0.005)
    if rank == 1 and step == 40: compute_for_ever()

train(41, forward)
)");
  ASSERT_TRUE(launcher.WaitForErr("in compute_for_ever")) << launcher.Err();
  ASSERT_TRUE(launcher.WaitForErr("  rank 2 (pid ")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  const std::string err = launcher.Err();
  EXPECT_THAT(err, AllOf(HasSubstr("rank 1 has been in phase forward of step 40 for "),
                         HasSubstr("; ranks 0, 2 wait in phase backward of step 40"), HasSubstr("Native stack"),
                         HasSubstr("in wait_in_backward")));
}

TEST_F(HangTest, OnHangRestart_HungRank_FailsAndJobSucceeds) {
  Finished launcher = Run(0, 2, {"--on-hang=restart:5", "--max-restarts=1"}, R"(
def forward(step):
    time.sleep(0.005)
    if rank == 1 and step == 5 and attempt == 0: signal.pause()

train(10, forward)
)");
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("rank 1 has been in phase forward of step 5 for "),
                                    HasSubstr("hung in phase forward of step 5 for "), HasSubstr("limit 5.0s")));
}

TEST_F(HangTest, OnHangRestart_WorkAfterLastStep_IsNoHang) {
  Finished launcher = Run(0, 2, {"--on-hang=restart"}, R"(
train(30, lambda step: time.sleep(0.005))
time.sleep(4)
)");
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("has been in")));
}

// Exit handlers that were registered before the first report run after it.
TEST_F(HangTest, OnHangRestart_ExitHandlersRun_IsNoHang) {
  Finished launcher = Run(0, 2, {"--on-hang=restart:4"}, R"(
import atexit
atexit.register(time.sleep, 5)
train(10, lambda step: time.sleep(0.005))
)");
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("has been in")));
}

// Started and forked workers.
class ExitTest : public HangTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Starts, ExitTest, ::testing::Values("--preload=none", "--preload=ddprun.worker"));

TEST_P(ExitTest, Exit_ThreadNeverEnds_RankIsNamedAndCountsAsFinished) {
  Finished launcher = Run(0, 2, {GetParam(), "--on-hang=report:1"}, R"(
import threading
train(10, lambda step: None)
if rank == 1: threading.Thread(target=threading.Event().wait).start()
)");
  const std::string err = launcher.Err();
  EXPECT_EQ(Count(err, "rank 1 (pid "), 3) << err;  // also with its stack
  EXPECT_EQ(Count(err, "; it counts as finished, and is killed after 2.0s if it is idle"), 1) << err;
  EXPECT_EQ(Count(err, " in _shutdown"), 1) << err;
  EXPECT_EQ(Count(err, ": killed; it counts as finished"), 1) << err;
}

TEST_P(ExitTest, Exit_HandlerNeverEnds_RankCountsAsFinished) {
  Finished launcher = Run(0, 1, {GetParam(), "--on-hang=restart:1"}, R"(
import atexit, threading
atexit.register(threading.Event().wait)
train(10, lambda step: None)
)");
  EXPECT_EQ(Count(launcher.Err(), ": killed; it counts as finished"), 1) << launcher.Err();
}

// The exit code is unknown until the worker has exited.
TEST_P(ExitTest, Exit_SysExitWaits_RankIsNamedAndNotKilled) {
  Launcher launcher = Start(1, {GetParam(), "--on-hang=report:1"}, R"(
import sys, threading
def wait(): open(os.environ["MEETING"] + "/go").read()

os.mkfifo(os.environ["MEETING"] + "/go")
train(10, lambda step: None)
threading.Thread(target=wait).start()
sys.exit(3)
)");
  ASSERT_TRUE(launcher.WaitForErr(") has finished its training and has not exited for ")) << launcher.Err();
  std::ofstream(dir_.File("go")) << "go";
  EXPECT_EQ(launcher.Wait(), 3) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), "counts as finished"), 0) << launcher.Err();
}

// It may be saving a checkpoint. It ends after it was reported and then spared.
TEST_P(ExitTest, Exit_ThreadBusy_RankIsNotKilled) {
  Finished launcher = Run(0, 1, {GetParam(), "--on-hang=report:1"}, R"(
import threading
def save():
    begin = time.process_time()
    while time.process_time() < begin + 2.5: pass
    print("saved", flush=True)

train(10, lambda step: None)
threading.Thread(target=save).start()
)");
  EXPECT_EQ(Count(launcher.Out(), "saved"), 1) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), ": killed"), 0) << launcher.Err();
}

TEST_F(HangTest, OnHangRestart_NoRestartLeft_SummaryHasStack) {
  Finished launcher = Run(128 + SIGKILL, 1, {"--on-hang=restart:2"}, R"(
def compute_for_ever():
    while True: pass

train(1, lambda step: compute_for_ever())
)");
  const std::string err = launcher.Err();
  EXPECT_THAT(err, HasSubstr("hung in phase forward of step 0 for "));
  EXPECT_GE(Count(err, "in compute_for_ever"), 2) << "when it was found, and in the summary: " << err;
}

TEST_F(HangTest, OnHangRestart_ZeroSeconds_IsOff) {
  Finished launcher = Run(0, 1, {"--on-hang=restart:0"}, R"(
train(30, lambda step: time.sleep(4 if step == 25 else 0.005))
)");
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("has been in")));
}

TEST_F(HangTest, Straggler_SlowRank_IsNamedWithRatio) {
  Launcher launcher = Start(3, {}, R"(
train(1000000, lambda step: time.sleep(0.06 if rank == 2 else 0.015))
)");
  ASSERT_TRUE(launcher.WaitForErr("rank 2 is slow: it computes ")) << launcher.Err();
  EXPECT_THAT(launcher.Err(), HasSubstr(" times the median of this node's ranks ("));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ddprun::testing
