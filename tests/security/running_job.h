#ifndef DDPRUN_TESTS_SECURITY_RUNNING_JOB_H_
#define DDPRUN_TESTS_SECURITY_RUNNING_JOB_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
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

// Waits until the client is refused; its stream may open first.
inline Disconnected AwaitRefusal(ClientLog* log) {
  while (std::optional<ClientEvent> event = log->Next()) {
    const auto* gone = std::get_if<Disconnected>(&*event);
    if (gone != nullptr && gone->permanent) return *gone;
    EXPECT_FALSE(std::holds_alternative<ServerMessage>(*event)) << Describe(*event);
  }
  return {};
}

// No call of a client without credentials is answered.
inline void ExpectGetsNothing(RawClient* stranger) {
  EXPECT_TRUE(absl::IsUnauthenticated(stranger->ListJobs(0, "").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger->GetJob("job").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger->Health("").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger->WatchHealth("").status()));
  EXPECT_TRUE(absl::IsUnimplemented(stranger->Reflect().status()));
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SECURITY_RUNNING_JOB_H_
