// Hung and slow workers with real launchers. The workers are Python programs that report their progress.
#include <signal.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

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

TEST_F(HangTest, BusyRank_IsNamedWithItsStackAndTheOthersWait) {
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

TEST_F(HangTest, OnHangRestart_TheHungRankHasFailedAndTheJobEndsWell) {
  Finished launcher = Run(0, 2, {"--on-hang=restart:5", "--max-restarts=1"}, R"(
def forward(step):
    time.sleep(0.005)
    if rank == 1 and step == 5 and attempt == 0: signal.pause()

train(10, forward)
)");
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("rank 1 has been in phase forward of step 5 for "),
                                    HasSubstr("hung in phase forward of step 5 for "), HasSubstr("limit 5.0s")));
}

TEST_F(HangTest, OnHangRestart_WhatComesAfterTheLastStepIsNoHang) {
  Finished launcher = Run(0, 2, {"--on-hang=restart"}, R"(
train(30, lambda step: time.sleep(0.005))
time.sleep(4)
)");
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("has been in")));
}

// Exit handlers that were registered before the first report run after it.
TEST_F(HangTest, OnHangRestart_AnExitIsNoHang) {
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

TEST_P(ExitTest, ThreadThatNeverEnds_TheRankIsNamedAndCountsAsFinished) {
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

TEST_P(ExitTest, ExitHandlerThatNeverEnds_TheRankCountsAsFinished) {
  Finished launcher = Run(0, 1, {GetParam(), "--on-hang=restart:1"}, R"(
import atexit, threading
atexit.register(threading.Event().wait)
train(10, lambda step: None)
)");
  EXPECT_EQ(Count(launcher.Err(), ": killed; it counts as finished"), 1) << launcher.Err();
}

// The exit code is unknown until the worker has exited.
TEST_P(ExitTest, SysExit_TheRankIsNamedAndNotKilled) {
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
TEST_P(ExitTest, BusyThread_TheRankIsNotKilled) {
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

TEST_F(HangTest, OnHangRestart_NoRestartLeft_TheSummaryHasTheStack) {
  Finished launcher = Run(128 + SIGKILL, 1, {"--on-hang=restart:2"}, R"(
def compute_for_ever():
    while True: pass

train(1, lambda step: compute_for_ever())
)");
  const std::string err = launcher.Err();
  EXPECT_THAT(err, HasSubstr("hung in phase forward of step 0 for "));
  EXPECT_GE(Count(err, "in compute_for_ever"), 2) << "when it was found, and in the summary: " << err;
}

TEST_F(HangTest, OnHangWithZeroSeconds_NothingIsWatched) {
  Finished launcher = Run(0, 1, {"--on-hang=restart:0"}, R"(
train(30, lambda step: time.sleep(4 if step == 25 else 0.005))
)");
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("has been in")));
}

TEST_F(HangTest, Straggler_IsNamedWithItsRatio) {
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
