// The worker link with real launchers. The workers are Python programs that speak it with the standard library alone.
// Sections are those of docs/worker_protocol.md.
#include <signal.h>

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

class WorkerLinkTest : public PythonWorkersTest {
 protected:
  WorkerLinkTest() { head_ = kSpeak; }
};

TEST_F(WorkerLinkTest, Section3_2_TheFailedWorkersLineAndTheSummarySayWhereItWas) {
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

TEST_F(WorkerLinkTest, Section3_2_EveryNodeSaysIt) {
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

TEST_F(WorkerLinkTest, Section2_4_RubbishAndFloods_OneLineEach_TheJobSucceeds) {
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

TEST_F(WorkerLinkTest, Section2_3_AChildThatHoldsTheSocketKeepsNothingOpen) {
  Finished launcher = Run(3, 1, {}, absl::StrCat("link = connect()\n", kReport, R"(
if os.fork() == 0:
    os.setsid()
    signal.pause()
sys.exit(3)
)"));
  EXPECT_THAT(launcher.Err(), HasSubstr("last reported step 120")) << launcher.Err();
}

}  // namespace
}  // namespace ddprun::testing
