#include "rendezvous/core/failure_text.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace ddprun::rendezvous {
namespace {

WorkerFailure Failure() {
  WorkerFailure failure = NewFailure();
  failure.set_host("node-b");
  failure.set_rank(3);
  failure.set_local_rank(1);
  failure.set_pid(77);
  failure.set_exit_code(3);
  return failure;
}

TEST(DescribeFailure, ExitCode) {
  WorkerFailure failure = Failure();
  EXPECT_EQ(DescribeFailure(failure), "rank 3 on node-b (local rank 1, pid 77) exited with code 3");
  failure.set_message("ValueError: bad\nsecond line");
  EXPECT_EQ(DescribeFailure(failure),
            "rank 3 on node-b (local rank 1, pid 77) exited with code 3: ValueError: bad second line");
  failure.set_message("exited with code 3");
  EXPECT_EQ(DescribeFailure(failure), "rank 3 on node-b (local rank 1, pid 77) exited with code 3");
}

TEST(DescribeFailure, SaysWhereItWas) {
  WorkerFailure failure = Failure();
  failure.set_progress("last reported step 120,\n3s before it ended");
  EXPECT_EQ(DescribeFailure(failure),
            "rank 3 on node-b (local rank 1, pid 77) exited with code 3; last reported step 120, 3s before it ended");
  failure.set_message("ValueError");
  EXPECT_EQ(DescribeFailure(failure),
            "rank 3 on node-b (local rank 1, pid 77) exited with code 3: ValueError; last reported step 120, 3s before "
            "it ended");
}

TEST(DescribeFailure, Signal) {
  WorkerFailure failure = Failure();
  failure.set_signal(SIGKILL);
  EXPECT_EQ(DescribeEnd(failure), "was killed by SIGKILL");
  failure.set_oom_killed(true);
  EXPECT_EQ(DescribeEnd(failure), "was killed by SIGKILL (OOM-killed)");
}

TEST(DescribeFailure, ItLivesAndSaidSoItself) {
  WorkerFailure failure = Failure();
  failure.set_exit_code(0);
  failure.set_message("connection reset by rank 2");
  EXPECT_EQ(DescribeFailure(failure),
            "rank 3 on node-b (local rank 1, pid 77) reported a failure: connection reset by rank 2");
  EXPECT_EQ(ExitStatus(failure), 1) << "a job that it brings down has not succeeded";
}

TEST(DescribeFailure, NeverStarted) {
  WorkerFailure failure = Failure();
  failure.set_pid(0);
  failure.set_restartable(false);
  failure.set_exit_code(kExitNotFound);
  EXPECT_EQ(DescribeFailure(failure), "rank 3 on node-b (local rank 1) was not started: no such program");
  failure.set_message("no such script: x.py");
  EXPECT_EQ(DescribeFailure(failure), "rank 3 on node-b (local rank 1) was not started: no such script: x.py");
  failure.set_exit_code(kExitCannotExecute);
  EXPECT_EQ(DescribeEnd(failure), "was not started: cannot execute the program");
  failure.set_exit_code(1);
  EXPECT_EQ(DescribeEnd(failure), "was not started");
}

TEST(DescribeFailure, AWorkersOwn127_IsAnExit) {
  WorkerFailure failure = Failure();
  failure.set_exit_code(127);
  EXPECT_EQ(DescribeEnd(failure), "exited with code 127");
}

TEST(DescribeFailure, AWorkerThatIsOfNoUse_SaidSo) {
  WorkerFailure failure = Failure();
  failure.set_exit_code(78);
  failure.set_restartable(false);
  failure.set_message("no such dataset");
  EXPECT_EQ(DescribeFailure(failure),
            "rank 3 on node-b (local rank 1, pid 77) exited with 78 (non-restartable): no such "
            "dataset");
}

TEST(DescribeFailure, LostNode) {
  WorkerFailure failure = NewFailure();
  failure.set_host("node-b");
  failure.set_message("no heartbeat for 3 s");
  EXPECT_EQ(DescribeFailure(failure), "node node-b was lost: no heartbeat for 3 s");
  failure.set_host("");
  EXPECT_EQ(DescribeWho(failure), "node an unknown host");
}

}  // namespace
}  // namespace ddprun::rendezvous
