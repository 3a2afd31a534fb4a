#ifndef DDPRUN_TESTS_SECURITY_RUNNING_JOB_H_
#define DDPRUN_TESTS_SECURITY_RUNNING_JOB_H_

#include <gtest/gtest.h>

#include <string>

#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/test_launcher.h"

namespace ddprun::rendezvous {

// A job with one launcher, whose round has started when the constructor returns.
class RunningJob : public TestLauncher {
 public:
  explicit RunningJob(const NewClient& client, const std::string& name = "job")
      : TestLauncher(client, name, "node1", PatientSettings(1)) {
    ConnectAndJoin();
    AwaitRound();
  }

  // Expects that the job is still served and succeeds.
  void End() {
    Succeed();
    EXPECT_TRUE(Await<Finish>().verdict().succeeded());
  }
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SECURITY_RUNNING_JOB_H_
