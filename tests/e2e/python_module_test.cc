// ddprun.worker, the Python module, with real launchers.
#include <signal.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class PythonModuleTest : public PythonWorkersTest {
 protected:
  PythonModuleTest() { head_ = "import os, sys, time\nfrom ddprun import worker\n"; }
  // Runs the script without a launcher.
  void ExpectOut(const std::string& script, const std::string& out) const {
    Process alone({"/usr/bin/env", "python3", Script(script)}, {{"PYTHONPATH", environment_.at("PYTHONPATH")}});
    EXPECT_EQ(alone.Wait(), 0) << alone.Err();
    EXPECT_EQ(alone.Out(), out);
  }
};

TEST_F(PythonModuleTest, ReportProgress_WorkerFails_SummaryHasTheLast) {
  Finished launcher = Run(3, 1, {}, R"(
worker.report_progress(119)
worker.report_progress(120, samples=7680, phase="r\u00fcckw\u00e4rts \ud800", loss=float("inf"))
sys.exit(3)
)");
  EXPECT_THAT(launcher.Err(), HasSubstr("exited with code 3; last reported step 120, 7680 samples, phase "
                                        "r\xC3\xBC"
                                        "ckw\xC3\xA4rts ?, loss inf, "))
      << launcher.Err();
}

TEST_F(PythonModuleTest, ReportProgress_ValueOutOfRange_Raises) {
  Finished launcher = Run(3, 1, {}, R"(
for arguments in ({"step": -1}, {"step": 1, "samples": -1}, {"step": 2**63}):
    try:
        worker.report_progress(**arguments)
    except ValueError:
        print("refused .", flush=True)
worker.report_progress(2**63 - 1)
sys.exit(3)
)");
  EXPECT_EQ(Count(launcher.Out(), "refused ."), 3);
  EXPECT_THAT(launcher.Err(), HasSubstr("last reported step 9223372036854775807, ")) << launcher.Err();
}

TEST_F(PythonModuleTest, ReportProgress_InForkedChild_DoesNothing) {
  Finished launcher = Run(3, 1, {}, R"(
worker.report_progress(1)
child = os.fork()
if child == 0:
    worker.report_progress(99)
    os._exit(0)
os.waitpid(child, 0)
worker.report_progress(2)
sys.exit(3)
)");
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("last reported step 2, "), Not(HasSubstr("worker link"))))
      << launcher.Err();
}

TEST_F(PythonModuleTest, ReportProgress_LauncherHangs_DoesNotBlock) {
  Launcher launcher = Start(1, {},
                            absl::StrCat(R"(
worker.report_progress(0)
print("ready .", flush=True)
while not os.path.exists(")",
                                         dir_.File("go"), R"("): time.sleep(0.01)
for step in range(20000): worker.report_progress(step, phase="forward")
print("reported .", flush=True)
)"));
  ASSERT_TRUE(launcher.WaitForOut("ready ."));
  launcher.Signal(SIGSTOP);
  std::ofstream(dir_.File("go")) << "";
  EXPECT_TRUE(launcher.WaitForOut("reported ."));
  launcher.Signal(SIGCONT);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("worker link")));
}

TEST_F(PythonModuleTest, StopRequested_Sigterm_HasLaunchersDeadline) {
  Launcher launcher = Start(1, {"--shutdown-timeout=300"}, R"(
del os.environ["DDPRUN_STOP_GRACE"]
assert worker.stop_requested() is None
print("ready .", flush=True)
while worker.stop_requested() is None: time.sleep(0.01)
print("between 30 and 300:", 30 < worker.stop_requested() <= 300, ".", flush=True)
)");
  ASSERT_TRUE(launcher.WaitForOut("ready ."));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_THAT(launcher.Out(), HasSubstr("between 30 and 300: True .")) << launcher.Err();
}

// A tracer simulates the handler, once at each instruction of the first call.
TEST_F(PythonModuleTest, Connection_SignalInFirstCall_IsOnlyOne) {
  Process python({"/usr/bin/env", "python3", Script(R"(
import importlib, socket
name = "ddprun-test-%d" % os.getpid()
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0" + name)
listener.listen(8)
listener.setblocking(False)
os.environ.update(DDPRUN_WORKER_LINK="@" + name, RANK="0", LOCAL_RANK="0")
instruction, left = 0, 0
while left == 0:
    importlib.reload(worker)
    left = instruction = instruction + 1
    def handler(frame, event, argument):
        global left
        if frame.f_globals is not vars(worker):
            return None
        frame.f_trace_opcodes = True
        left -= 1
        if left == 0:
            worker.stop_requested()
            worker.report_progress(7)
        return handler
    sys.settrace(handler)
    worker.report_progress(1)
    sys.settrace(None)
    left = max(left, 0)
    connections = []
    try:
        while True:
            connections.append(listener.accept()[0])
    except BlockingIOError:
        pass
    if len(connections) != 1 or not connections[0].recv(100).startswith(b'{"type":"hello"'):
        sys.exit("instruction %d: %d connections" % (instruction, len(connections)))
print("over 300:", instruction > 300)
)")},
                 environment_);
  EXPECT_EQ(python.Wait(), 0) << python.Err();
  EXPECT_EQ(python.Out(), "over 300: True\n");
}

// A launcher in the worker's own process.
constexpr char kLauncher[] = R"(
import json, socket
name = f"ddprun test {os.getpid()}"
os.environ.update(RANK="0", LOCAL_RANK="0", DDPRUN_ROUND="1", DDPRUN_WORKER_LINK="@" + name)
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0" + name)
listener.settimeout(60)

def say(**fields):
    connection.sendall(json.dumps(fields).encode() + b"\n")

def say_reform(round):
    numbers = ("rank", "world_size", "local_world_size", "group_rank", "group_world_size", "role_rank",
               "role_world_size", "master_port", "restart_count")
    say(type="re-form", round=round, master_addr="127.0.0.1", **dict.fromkeys(numbers, 1))
)";

TEST_F(PythonModuleTest, Connection_LauncherBusy_IsRetried) {
  ExpectOut(std::string(kLauncher) + R"(
listener.listen(0)
other = socket.socket(socket.AF_UNIX)
other.connect("\0" + name)
worker.report_progress(1)
assert worker._link.socket is None
listener.accept()
while worker._link.socket is None:
    worker.report_progress(2)
connection = listener.accept()[0]
lines = connection.makefile()
print(json.loads(lines.readline())["type"], json.loads(lines.readline())["step"], ".")
)",
            "hello 2 .\n");
}

TEST_F(PythonModuleTest, KeepProcess_ManyDescriptors_ThreadWaits) {
  ExpectOut(std::string(kLauncher) + R"(
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
many = [os.dup(0) for _ in range(1100)]
reads = 0
receive = worker._Link.receive

def count(link):
    global reads
    reads += 1
    receive(link)

worker._Link.receive = count
listener.listen()
assert worker.keep_process(on_suspend=print)
connection = listener.accept()[0]
connection.recv(4096)
for _ in range(100):
    time.sleep(0.001)
say(type="stop", deadline=100)
while worker.stop_requested() is None:
    time.sleep(0.001)
print(reads < 5 or reads, ".")
)",
            "True .\n");
}

TEST_F(PythonModuleTest, KeepProcess_OnSuspendRaises_NextRoundRaisesIt) {
  ExpectOut(std::string(kLauncher) + R"(
def fail(suspend):
    raise KeyError(suspend.round)

listener.listen()
assert worker.keep_process(on_suspend=fail)
connection = listener.accept()[0]
for round in (1, 2):
    say(type="suspend", round=round, at_step_end=False, reason="rank 1 failed")
    assert worker.suspended(7)
    say_reform(round + 1)
    try:
        worker.next_round()
    except KeyError as error:
        print("raised", error, ".")
    print(worker.next_round().round, ".")
)",
            "raised 1 .\n2 .\nraised 2 .\n3 .\n");
}

TEST_F(PythonModuleTest, WithoutLauncher_CtrlC_StopsThenInterrupts) {
  ExpectOut(R"(
import signal
assert worker.stop_requested() is None
os.kill(os.getpid(), signal.SIGINT)
print(worker.stop_requested() is not None, ".")
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted .")
)",
            "True .\ninterrupted .\n");
}

TEST_F(PythonModuleTest, WithoutLauncher_ReportProgress_DoesNothing) {
  ExpectOut(R"(
import signal
worker.report_progress(1)
assert worker.stop_requested() is None
os.environ["DDPRUN_STOP_GRACE"] = "7"
os.kill(os.getpid(), signal.SIGTERM)
print("at most 7:", 0 < worker.stop_requested() <= 7, ".")
)",
            "at most 7: True .\n");
}

TEST_F(PythonModuleTest, KeepProcess_AfterReport_OneConnection) {
  Finished launcher = Run(3, 1, {}, R"(
worker.report_progress(1)
print(worker.keep_process(on_suspend=print), worker.suspend_requested(), ".", flush=True)
worker.report_progress(7)
sys.exit(3)
)");
  EXPECT_THAT(launcher.Out(), HasSubstr("True None ."));
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("last reported step 7"), Not(HasSubstr("worker link"))))
      << launcher.Err();
}

TEST_F(PythonModuleTest, KeepProcess_WithoutLauncher_DoesNotWait) {
  std::map<std::string, std::string> environment = environment_;
  environment["DDPRUN_WORKER_LINK"] = "";
  Process process({"/usr/bin/env", "python3", Script(R"(
print(worker.keep_process(on_suspend=print), worker.suspended(3), worker.next_round(), ".")
)")},
                  environment);
  EXPECT_EQ(process.Wait(), 0) << process.Err();
  EXPECT_EQ(process.Out(), "False False None .\n");
}

}  // namespace
}  // namespace ddprun::testing
