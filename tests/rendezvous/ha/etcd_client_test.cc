// Streams to members of a real etcd that die, are stopped, or lose their leader.
#include "rendezvous/ha/etcd_client.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <future>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/testing/process.h"

namespace ddprun::rendezvous {
namespace {

using ::ddprun::testing::Eventually;

constexpr char kKey[] = "watched";

// The client's first call goes to member 0.
class EtcdClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
    etcd_ = std::make_unique<testing::EtcdCluster>();
    EtcdOptions options;
    for (int member = 0; member < testing::EtcdCluster::kMembers; ++member) {
      options.endpoints.push_back(etcd_->Endpoint(member));
    }
    client_ = *EtcdClient::Create(options);
  }

  static SteadyTime Soon() { return SteadyNow() + absl::Seconds(30); }
  // The current revision, once a member answers.
  int64_t Read() {
    etcdserverpb::RangeRequest request;
    request.set_key(kKey);
    etcdserverpb::RangeResponse response;
    EXPECT_TRUE(Eventually([&] { return client_->Range(request, Soon(), &response).ok(); }));
    return response.header().revision();
  }
  // The key does not change. Returns when member 0 serves the watch.
  std::future<absl::Status> Watch() {
    const int64_t revision = Read();
    auto watch = std::async(std::launch::async, [this, revision] {
      return client_->AwaitChange(kKey, revision, SteadyTime::InfiniteFuture());
    });
    EXPECT_TRUE(Eventually([&] { return etcd_->Counter(0, "msg_sent", "Watch") > 0; }));
    return watch;
  }
  void Put() {
    EXPECT_TRUE(Eventually([&] { return etcd_->Ctl({"put", kKey, "value"}).starts_with("OK"); }));
  }
  // Watching continues at another member, and misses no change since `revision`.
  void ExpectChangeIsSeen(int64_t revision) {
    Put();
    EXPECT_TRUE(Eventually([&] { return client_->AwaitChange(kKey, revision, SteadyTime::InfiniteFuture()).ok(); }));
  }
  bool Renew(int64_t lease) { return client_->LeaseKeepAlive(lease, Soon()).ok(); }

  std::unique_ptr<testing::EtcdCluster> etcd_;
  std::unique_ptr<EtcdClient> client_;
};

TEST_F(EtcdClientTest, AwaitChange_ReturnsWhenTheKeyIsPutDeletedOrCompacted_OrAtTheDeadline) {
  const SteadyTime never = SteadyTime::InfiniteFuture();
  const int64_t first = Read();
  Put();
  EXPECT_TRUE(client_->AwaitChange(kKey, first, never).ok()) << "changed before the watch began";
  EXPECT_TRUE(client_->AwaitChange(kKey, Read(), SteadyNow() + absl::Milliseconds(1)).ok());
  auto watch = Watch();
  etcd_->Ctl({"del", kKey});
  EXPECT_TRUE(watch.get().ok());
  etcd_->Ctl({"put", "other", "value"});
  etcd_->Ctl({"compact", absl::StrCat(Read())});
  EXPECT_TRUE(client_->AwaitChange(kKey, first, never).ok());
}

TEST_F(EtcdClientTest, NothingChanges_TheWatchAsksForProgress_OnItsOnlyStream) {
  auto watch = Watch();
  EXPECT_TRUE(Eventually([&] { return etcd_->Counter(0, "msg_received", "Watch") >= 3; }));
  EXPECT_EQ(etcd_->Counter(0, "started", "Watch"), 1);
  Put();
  EXPECT_TRUE(watch.get().ok());
}

class WatchedMemberTest : public EtcdClientTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, WatchedMemberTest, ::testing::Values(SIGSTOP, SIGKILL));

TEST_P(WatchedMemberTest, IsStoppedOrDies_AnotherServesTheNext) {
  const int64_t revision = Read();
  auto watch = Watch();
  etcd_->Signal(0, GetParam());
  EXPECT_TRUE(absl::IsUnavailable(watch.get()));
  ExpectChangeIsSeen(revision);
}

TEST_F(EtcdClientTest, MemberOfAWatchHasNoLeader_TheWatchEnds) {
  const int64_t revision = Read();
  auto watch = Watch();
  for (const int other : {1, 2}) etcd_->Kill(other);
  EXPECT_TRUE(absl::IsUnavailable(watch.get())) << "though the member answers";
  for (const int other : {1, 2}) etcd_->Restart(other);
  ExpectChangeIsSeen(revision);
}

TEST_F(EtcdClientTest, Stop_EndsAWatch) {
  auto watch = Watch();
  client_->Stop();
  EXPECT_TRUE(absl::IsCancelled(watch.get()));
  EXPECT_TRUE(absl::IsCancelled(client_->AwaitChange(kKey, 1, SteadyTime::InfiniteFuture())));
}

TEST_F(EtcdClientTest, RenewalsShareAStream_UntilItsMemberDies) {
  etcdserverpb::LeaseGrantResponse lease;
  ASSERT_TRUE(client_->LeaseGrant(absl::Minutes(1), Soon(), &lease).ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Renew(lease.id()));
  EXPECT_EQ(etcd_->Counter(0, "started", "LeaseKeepAlive"), 1);
  etcd_->Kill(0);
  EXPECT_TRUE(Eventually([&] { return Renew(lease.id()); }));
  const auto streams = [this] {
    return etcd_->Counter(1, "started", "LeaseKeepAlive") + etcd_->Counter(2, "started", "LeaseKeepAlive");
  };
  const int opened = streams();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Renew(lease.id()));
  EXPECT_EQ(streams(), opened);
  ASSERT_TRUE(client_->LeaseRevoke(lease.id(), Soon()).ok());
  EXPECT_TRUE(absl::IsNotFound(client_->LeaseKeepAlive(lease.id(), Soon())));
}

TEST(EtcdProblemTest, SaysWhatToDo) {
  const auto describe = [](const char* text) { return DescribeEtcdProblem(text, false); };
  EXPECT_EQ(describe("DNS resolution failed for x:2379: C-ares status is not ARES_SUCCESS"),
            "the host name does not resolve; check --etcd");
  EXPECT_EQ(describe("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to "
                     "remote host: No route to host"),
            "No route to host");
  EXPECT_TRUE(absl::StartsWith(describe("Ssl handshake failed: SSL routines::certificate verify failed"),
                               "etcd's certificate is not valid here; check --etcd-cacert"));
  EXPECT_EQ(describe("etcdserver: no leader"), "no leader");
  // gRPC reports one of these, depending on the progress of the other side.
  for (const char* text : {"Ssl handshake failed: wrong version number", "Handshake read failed"}) {
    EXPECT_TRUE(absl::StartsWith(DescribeEtcdProblem(text, true), "the TLS handshake failed; ")) << text;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
