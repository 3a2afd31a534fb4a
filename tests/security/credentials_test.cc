// A server with credentials: who has them gets in, who has not gets nothing.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/server/call_guard.h"
#include "tests/rendezvous_net/net_fixture.h"
#include "tests/rendezvous_net/raw_client.h"
#include "tests/rendezvous_net/test_launcher.h"
#include "tests/security/certificates.h"

// What OpenSSL keeps for each thread. gRPC's threads may still run when the process ends, and LeakSanitizer then
// reports it; leaks of ours would be found in credential_files_test.
extern "C" const char* __lsan_default_suppressions() { return "leak:CRYPTO_zalloc\nleak:ERR_add_error_vdata\n"; }

namespace ddprun::rendezvous {
namespace {

using testing::NewFolder;
using testing::StallReaders;
using testing::TestCa;
using testing::WriteFile;

const char kOld[] = "an-old-token-of-this-test";
const char kNew[] = "a-new-token-of-this-test";

void RunJob(TestLauncher* launcher) {
  launcher->ConnectAndJoin();
  launcher->AwaitRound();
  launcher->Succeed();
  EXPECT_TRUE(launcher->Await<Finish>().verdict.succeeded);
}

// What a client with these credentials is told in the end; the stream may open before it is refused.
Disconnected AwaitRefusal(ClientLog* log) {
  while (std::optional<ClientEvent> event = log->Next()) {
    const auto* gone = std::get_if<Disconnected>(&*event);
    if (gone != nullptr && gone->permanent) return *gone;
    EXPECT_FALSE(std::holds_alternative<ServerMessage>(*event)) << Describe(*event);
  }
  return {};
}

Disconnected RefusalOf(int port, const Credentials& credentials) {
  ClientLog log;
  const auto client = TestServer::GrpcTo(port, credentials)(log.Handler());
  return AwaitRefusal(&log);
}

TEST(TokenTest, RightToken_IsServed) {
  TestServer server({.credentials = {.token = kOld}});
  TestLauncher launcher(TestServer::GrpcTo(server.port(), {.token = kOld}), "job", "node1", PatientSettings(1));
  RunJob(&launcher);
}

TEST(TokenTest, WrongOrNoToken_OneRefusalForGood) {
  TestServer server({.credentials = {.token = kOld}});
  const Disconnected wrong = RefusalOf(server.port(), {.token = kNew});
  EXPECT_TRUE(absl::StrContains(wrong.reason, "token")) << wrong.reason;
  EXPECT_FALSE(absl::StrContains(wrong.reason, kNew)) << wrong.reason;
  EXPECT_TRUE(absl::StrContains(RefusalOf(server.port(), {}).reason, "token"));
}

TEST(TokenTest, Stranger_GetsNothingFromAnyCall) {
  TestServer server({.credentials = {.token = kOld}});
  TestLauncher launcher(TestServer::GrpcTo(server.port(), {.token = kOld}), "job", "node1", PatientSettings(1));
  launcher.ConnectAndJoin();
  launcher.AwaitRound();
  RawClient stranger(server.port());
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.ListJobs(0, "").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.GetJob("job").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.Health("").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.WatchHealth("").status()));
  EXPECT_TRUE(absl::IsUnimplemented(stranger.Reflect().status()));
  EXPECT_FALSE(stranger.Read().has_value());
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.Finish()));
  launcher.Succeed();
  EXPECT_TRUE(launcher.Await<Finish>().verdict.succeeded);
}

TEST(TokenTest, Rotation_RunningJobGoesOn) {
  const std::string path = NewFolder("token") + "/token";
  WriteFile(path, kOld);
  TestServer server({.credentials = {.token_file = path}});
  TestLauncher running(TestServer::GrpcTo(server.port(), {.token = kOld}), "running", "node1", PatientSettings(1));
  running.ConnectAndJoin();
  running.AwaitRound();
  WriteFile(path, absl::StrCat(kNew, "\n", kOld, "\n"));
  for (const char* token : {kOld, kNew}) {
    TestLauncher other(TestServer::GrpcTo(server.port(), {.token = token}), token, "node1", PatientSettings(1));
    RunJob(&other);
  }
  WriteFile(path, kNew);
  EXPECT_TRUE(absl::StrContains(RefusalOf(server.port(), {.token = kOld}).reason, "token"));
  running.Succeed();
  EXPECT_TRUE(running.Await<Finish>().verdict.succeeded);
}

TEST(TokenTest, FileStalls_RunningJobGoesOnAndKnownTokensAreServed) {
  const std::string path = NewFolder("token") + "/token";
  WriteFile(path, kOld);
  TestServer server({.credentials = {.token_file = path}});
  TestLauncher running(TestServer::GrpcTo(server.port(), {.token_file = path}), "running", "node1", PatientSettings(1));
  running.ConnectAndJoin();
  running.AwaitRound();
  StallReaders(path);
  TestLauncher other(TestServer::GrpcTo(server.port(), {.token = kOld}), "other", "node1", PatientSettings(1));
  RunJob(&other);
  running.Succeed();
  EXPECT_TRUE(running.Await<Finish>().verdict.succeeded);
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() : ca_(NewFolder("ca")), other_(NewFolder("other")) {
    ca_.Issue("server", "IP:127.0.0.1");
    ca_.Issue("node1", "DNS:node1.cluster");
    ca_.Issue("node2", "DNS:node2.cluster");
    ca_.Issue("misnamed", "DNS:elsewhere");
    ca_.Issue("expired", "DNS:node1.cluster", absl::Now() - absl::Hours(1));
    other_.Issue("node1", "DNS:node1.cluster");
  }

  Credentials Of(const TestCa& signer, const std::string& name, const TestCa& believed) const {
    return {.tls_cert = signer.cert(name), .tls_key = signer.key(name), .tls_ca = believed.ca()};
  }

  TestCa ca_;
  TestCa other_;
};

TEST_F(TlsTest, CertificatesOnBothSides_IsServed) {
  TestServer server({.credentials = Of(ca_, "server", ca_)});
  TestLauncher launcher(TestServer::GrpcTo(server.port(), Of(ca_, "node1", ca_)), "job", "node1", PatientSettings(1));
  RunJob(&launcher);
}

TEST_F(TlsTest, CertificateOfTheServerOnly_WithToken_IsServed) {
  Credentials credentials = Of(ca_, "server", ca_);
  credentials.tls_ca.clear();
  credentials.token = kOld;
  TestServer server({.credentials = credentials});
  TestLauncher launcher(TestServer::GrpcTo(server.port(), {.token = kOld, .tls_ca = ca_.ca()}), "job", "node1",
                        PatientSettings(1));
  RunJob(&launcher);
  EXPECT_TRUE(absl::StrContains(RefusalOf(server.port(), {.tls_ca = ca_.ca()}).reason, "token"));
}

// Not at once: certificates may be about to be renewed. But not for ever.
TEST_F(TlsTest, BadCertificates_RefusedForGoodAfterAWhile) {
  TestServer server({.credentials = Of(ca_, "server", ca_)});
  TestServer misnamed({.credentials = Of(ca_, "misnamed", ca_)});
  struct Case {
    const char* what;
    ClientLog log;
    std::unique_ptr<Client> client;
  };
  std::vector<std::unique_ptr<Case>> cases;
  const auto add = [&](const char* what, const TestServer& to, const Credentials& credentials) {
    cases.push_back(std::make_unique<Case>());
    cases.back()->what = what;
    cases.back()->client = TestServer::GrpcTo(to.port(), credentials)(cases.back()->log.Handler());
  };
  add("signed by another CA", server, Of(other_, "node1", ca_));
  add("expired", server, Of(ca_, "expired", ca_));
  add("none", server, {.tls_ca = ca_.ca()});
  add("does not believe the server", server, Of(ca_, "node1", other_));
  add("the server is called otherwise", misnamed, Of(ca_, "node1", ca_));
  for (const auto& c : cases) {
    SCOPED_TRACE(c->what);
    const std::string reason = AwaitRefusal(&c->log).reason;
    EXPECT_TRUE(absl::StrContains(reason, "TLS handshake failed")) << reason;
    printf("%s: %s\n", c->what, reason.c_str());
  }
}

TEST_F(TlsTest, StrangerWithoutTls_GetsNothing) {
  TestServer server({.credentials = Of(ca_, "server", ca_)});
  RawClient stranger(server.port());
  EXPECT_FALSE(stranger.ListJobs(0, "").ok());
  EXPECT_FALSE(stranger.Health("").ok());
  EXPECT_FALSE(stranger.Reflect().ok());
  EXPECT_FALSE(stranger.Read().has_value());
}

TEST_F(TlsTest, NameNotAllowed_RefusedForGood) {
  Credentials credentials = Of(ca_, "server", ca_);
  credentials.tls_allowed_names = {"node1.cluster"};
  TestServer server({.credentials = credentials});
  TestLauncher allowed(TestServer::GrpcTo(server.port(), Of(ca_, "node1", ca_)), "job", "node1", PatientSettings(1));
  RunJob(&allowed);
  const std::string reason = RefusalOf(server.port(), Of(ca_, "node2", ca_)).reason;
  EXPECT_TRUE(absl::StrContains(reason, "--tls-allowed-names")) << reason;
}

TEST_F(TlsTest, Rotation_RunningJobGoesOnAndNewClientsGetIn) {
  const std::string folder = NewFolder("rotating");
  auto before = std::make_unique<TestCa>(folder);
  before->Issue("server", "IP:127.0.0.1");
  before->Issue("node1", "DNS:node1");
  const Credentials credentials = Of(*before, "server", *before);
  const Credentials client = Of(*before, "node1", *before);
  TestServer server({.credentials = credentials});
  TestLauncher running(TestServer::GrpcTo(server.port(), client), "running", "node1", PatientSettings(1));
  running.ConnectAndJoin();
  running.AwaitRound();
  // All of it anew, in the same files.
  TestCa after(folder);
  after.Issue("server", "IP:127.0.0.1");
  after.Issue("node1", "DNS:node1");
  ClientLog log;
  const auto other = TestServer::GrpcTo(server.port(), client)(log.Handler());
  log.AwaitReconnected();  // as soon as the server has seen the new files, too
  running.Succeed();
  EXPECT_TRUE(running.Await<Finish>().verdict.succeeded);
}

TEST_F(TlsTest, FilesOfTheClientStall_ReconnectsWithWhatWasReadLast) {
  TestServer server({.credentials = Of(ca_, "server", ca_)});
  Credentials credentials = Of(ca_, "node1", ca_);
  credentials.tls_ca = NewFolder("stalling") + "/ca.crt";
  std::filesystem::copy_file(ca_.ca(), credentials.tls_ca);
  ClientLog log;
  const auto client = TestServer::GrpcTo(server.port(), credentials)(log.Handler());
  log.Await<Connected>();
  StallReaders(credentials.tls_ca);
  server.Restart();
  log.AwaitReconnected();
}

TEST(CallGuardTest, AddressOfPeer_EveryForm) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.1:4711"), "10.0.0.1");
  EXPECT_EQ(AddressOfPeer("ipv6:[::1]:4711"), "::1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::1%5D:4711"), "::1");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::ffff:10.0.0.1%5D:4711"), "10.0.0.1");
}

}  // namespace
}  // namespace ddprun::rendezvous
