// A real rendezvousd whose state directory is on a disk that is full for a while, simulated by the file size limit
// (RLIMIT_FSIZE).

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/client/grpc_client.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/testing/process.h"

namespace ddprun::rendezvous {
namespace {

class FullDiskTest : public ::testing::Test {
 protected:
  FullDiskTest() {
    EXPECT_TRUE(server_.WaitForOut("\n")) << server_.Err();
    const std::string line = server_.Out();
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port_)) << line;
  }

  std::unique_ptr<TestLauncher> Join(const std::string& job, const std::string& host, int nodes) {
    auto launcher = std::make_unique<TestLauncher>(TestServer::GrpcTo(port_), job, host, PatientSettings(nodes));
    launcher->ConnectAndJoin();
    return launcher;
  }

  // Limits the size of files; 0: as far as they may grow.
  void LimitFiles(rlim_t size) {
    rlimit limit = {};
    ASSERT_EQ(prlimit(server_.pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
    limit.rlim_cur = size == 0 ? limit.rlim_max : size;
    ASSERT_EQ(prlimit(server_.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  }
  // The database's log cannot grow afterwards.
  void FillDisk() { LimitFiles(std::filesystem::file_size(dir_.File("state/state.db-wal"))); }
  void EmptyDisk() { LimitFiles(0); }

  testing::TempDir dir_;
  testing::Process server_{
      {"rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--state-dir=" + dir_.File("state")}};
  int port_ = 0;
};

// Returns the first Waiting reason that names the state directory.
std::string AwaitReason(TestLauncher* launcher) {
  std::string reason;
  while (!absl::StrContains(reason, "state directory") && !::testing::Test::HasFailure()) {
    reason = launcher->Await<Waiting>().reason();
  }
  return reason;
}

TEST_F(FullDiskTest, LaunchersAreToldAndTheJobsGoOn) {
  const auto running = Join("running", "node1", 1);
  running->AwaitRound();
  FillDisk();
  // No round is assigned before its record is persisted, and all waiting launchers receive the reason.
  const auto first = Join("job", "node1", 2), second = Join("job", "node2", 2);
  const std::string reason = AwaitReason(first.get());
  EXPECT_TRUE(absl::StartsWith(reason, "the rendezvous server can't write to the state directory ")) << reason;
  EXPECT_THAT(reason, HasSubstr(dir_.File("state")));
  EXPECT_EQ(AwaitReason(second.get()), reason);
  const auto third = Join("job", "node3", 2);
  EXPECT_EQ(AwaitReason(third.get()), reason) << "who comes later is told as well";
  running->client().Send(Heartbeat{});
  running->Await<HeartbeatAck>();
  EmptyDisk();
  EXPECT_EQ(first->AwaitRound().round(), 1);
  EXPECT_EQ(second->AwaitRound().round(), 1);
  running->Succeed();
  EXPECT_TRUE(running->Await<Finish>().verdict().succeeded());

  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0);
  const std::string log = server_.Err();
  for (const char* once : {"can't write to the state directory", "is writable again"}) {
    EXPECT_THAT(log, HasSubstr(once));
    EXPECT_EQ(log.find(once), log.rfind(once)) << log;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
