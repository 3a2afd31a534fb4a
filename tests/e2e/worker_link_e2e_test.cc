// The worker link with real launchers. The workers are Python programs that speak it with the standard library alone.
// Sections are those of docs/worker_protocol.md.
#include <signal.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

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

class WorkerLinkTest : public ::testing::Test {
 protected:
  std::string Script(const std::string& text) const {
    std::ofstream(dir_.File("train.py")) << kSpeak << text;
    return dir_.File("train.py");
  }
  // Arguments of a one-node launcher.
  std::vector<std::string> Flags(int slots, const std::string& script, std::vector<std::string> more = {}) const {
    std::vector<std::string> flags = {"--standalone", absl::StrCat("--nproc-per-node=", slots)};
    flags.insert(flags.end(), more.begin(), more.end());
    flags.push_back(Script(script));
    return flags;
  }

  Finished Run(int code, int slots, const std::string& script,
               std::source_location at = std::source_location::current()) const {
    return Finished(code, Flags(slots, script), python_, at);
  }

  const std::map<std::string, std::string> python_ = {{"PYTHON_EXEC", "python3"}};
  const TempDir dir_;
};

TEST_F(WorkerLinkTest, Section3_2_TheFailedWorkersLineAndTheSummarySayWhereItWas) {
  Finished launcher = Run(3, 2,
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
  EXPECT_THAT(err, Not(HasSubstr("121"))) << "the other one was only stopped";
}

TEST_F(WorkerLinkTest, Section3_2_EveryNodeSaysIt) {
  const int port = FreePort();
  std::vector<std::string> flags = {"--nnodes=2", "--nproc-per-node=1",
                                    absl::StrCat("--rdzv-endpoint=127.0.0.1:", port),
                                    Script(absl::StrCat("link = connect()\n", kReport,
                                                        "signal.pause() if rank == 0 else os.kill(os.getpid(), 9)\n"))};
  Launcher a(flags, python_), b(flags, python_);
  ExpectEnd({&a, &b}, 128 + SIGKILL);
  for (const std::string& err : {a.Err(), b.Err()}) {
    EXPECT_THAT(err, AllOf(HasSubstr("rank      : 1 "), HasSubstr("  progress  : last reported step 120"))) << err;
  }
}

TEST_F(WorkerLinkTest, PlainWorkers_NothingChanges) {
  Finished launcher = Run(3, 1, "sys.exit(3)\n");
  EXPECT_THAT(launcher.Err(), AllOf(Not(HasSubstr("worker link")), Not(HasSubstr("progress")), HasSubstr("code 3")));
}

TEST_F(WorkerLinkTest, WorkersOfAForkServerReportToo) {
  std::ofstream(dir_.File("a_module.py")) << "";
  std::map<std::string, std::string> environment = python_;
  environment["PYTHONPATH"] = dir_.path();
  Finished launcher(3, Flags(4, absl::StrCat("link = connect()\n", kReport, "sys.exit(3)\n"), {"--preload=a_module"}),
                    environment);
  EXPECT_THAT(launcher.Err(), HasSubstr("last reported step 120")) << launcher.Err();
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("worker link"))) << launcher.Err();
}

TEST_F(WorkerLinkTest, Section2_3_AChildThatHoldsTheSocketKeepsNothingOpen) {
  Finished launcher = Run(3, 1, absl::StrCat("link = connect()\n", kReport, R"(
if os.fork() == 0:
    os.setsid()
    signal.pause()
sys.exit(3)
)"));
  EXPECT_THAT(launcher.Err(), HasSubstr("last reported step 120")) << launcher.Err();
}

}  // namespace
}  // namespace ddprun::testing
