#include "base/local_jobs.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <thread>

namespace ddprun {
namespace {

// The job of this process among those found.
const LocalJob* OwnJob(const std::vector<LocalJob>& jobs) {
  for (const LocalJob& job : jobs) {
    if (job.launcher == getpid()) return &job;
  }
  return nullptr;
}

TEST(LocalJobsTest, Launcher_Listens_IsFoundWithItsJob) {
  const absl::StatusOr<int> listener = ListenForLocalJobs();
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(AcceptLocalJob(*listener), -1) << "nobody has asked";
  std::thread answering([&listener] {
    pollfd readable = {*listener, POLLIN, 0};
    poll(&readable, 1, -1);
    const int connection = AcceptLocalJob(*listener);
    ASSERT_GE(connection, 0);
    AnswerLocalJob(connection, {.server = "127.0.0.1:29400,b:1", .job_id = "my job", .token = "secret"});
  });
  const std::vector<LocalJob> jobs = FindLocalJobs();
  answering.join();
  close(*listener);
  const LocalJob* const own = OwnJob(jobs);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->server, "127.0.0.1:29400,b:1");
  EXPECT_EQ(own->job_id, "my job");
  EXPECT_EQ(own->token, "secret");
  EXPECT_EQ(OwnJob(FindLocalJobs()), nullptr) << "it no longer listens";
}

}  // namespace
}  // namespace ddprun
