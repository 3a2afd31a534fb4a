// Servers that accept clients with a MUNGE credential of the server's user. Each test runs a real munged.
#include "rendezvous/wire/munge.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "proto/control.grpc.pb.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/server.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/test_launcher.h"
#include "tests/security/certificates.h"
#include "tests/security/running_job.h"
#include "tests/testing/process.h"

namespace ddprun::rendezvous {
namespace {

using testing::Eventually;
using testing::Process;
using testing::WriteFile;

// Directly in /tmp, because a socket path has at most 108 bytes, and all users must be able to reach it.
std::string NewShortFolder() {
  std::string folder = "/tmp/munge-XXXXXX";
  return mkdtemp(folder.data()) == nullptr ? "" : folder;
}

class MungeTest : public ::testing::Test {
 protected:
  ~MungeTest() override {
    munged_ = nullptr;
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void SetUp() override {
    if (access("/usr/sbin/munged", X_OK) != 0) GTEST_SKIP() << "no munged: apt-get install munge";
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
    WriteFile(folder_ + "/key", "a key of this test only, which must have at least 32 bytes");
    chmod((folder_ + "/key").c_str(), 0600);
    chmod(folder_.c_str(), 0755);
    StartMunged();
  }

  void StartMunged() {
    munged_ = nullptr;
    munged_ = std::make_unique<Process>(std::vector<std::string>{
        "/usr/sbin/munged", "--foreground", "--force", absl::StrCat("--key-file=", folder_, "/key"),
        absl::StrCat("--socket=", socket_), absl::StrCat("--pid-file=", folder_, "/pid"),
        absl::StrCat("--seed-file=", folder_, "/seed"), absl::StrCat("--log-file=", folder_, "/log")});
    // The socket may belong to an earlier munged, or be bound without listening yet.
    ASSERT_TRUE(Eventually([&] { return Verdict(CredentialBy("root")).ok() || !testing::Alive(munged_->pid()); }))
        << munged_->Err();
  }
  Process& munged() { return *munged_; }

  // Output of the `munge` command.
  std::string CredentialBy(const std::string& user, const std::string& payload = "ddprun-rendezvous") {
    Process munge({"/usr/bin/env", "setpriv", "--reuid", user, "--clear-groups", "munge",
                   absl::StrCat("--socket=", socket_), absl::StrCat("--string=", payload)});
    munge.Wait();
    const std::string out = munge.Out();
    return std::string(absl::StripSuffix(out, "\n"));
  }

  absl::Status Verdict(const std::string& credential) {
    std::promise<absl::Status> verdict;
    Munge munge(socket_);
    munge.Verify(credential, [&](const absl::Status& status) { verdict.set_value(status); });
    return verdict.get_future().get();
  }

  absl::StatusOr<std::string> NewCredential(const std::string& socket) {
    std::promise<absl::StatusOr<std::string>> credential;
    Munge munge(socket);
    munge.Encode([&](const absl::StatusOr<std::string>& made) { credential.set_value(made); });
    return credential.get_future().get();
  }

  Credentials WithMunge() const { return {.munge = true, .munge_socket = socket_}; }

  TestLauncher::NewClient To(const TestServer& server) const { return TestServer::GrpcTo(server.port(), WithMunge()); }

  const std::string folder_ = NewShortFolder();
  const std::string socket_ = folder_ + "/socket";
  std::unique_ptr<Process> munged_;
};

TEST_F(MungeTest, Credential_OwnUsers_IsValidOnce) {
  const absl::StatusOr<std::string> credential = NewCredential(socket_);
  EXPECT_TRUE(Verdict(*credential).ok());
  const absl::Status again = Verdict(*credential);
  EXPECT_TRUE(absl::IsUnauthenticated(again)) << again;
  EXPECT_THAT(again.message(), HasSubstr("eplayed"));
}

TEST_F(MungeTest, Credential_OtherUserPurposeOrNone_IsInvalid) {
  EXPECT_TRUE(absl::IsPermissionDenied(Verdict(CredentialBy("nobody"))));
  EXPECT_TRUE(absl::IsUnauthenticated(Verdict(CredentialBy("root", "something else"))));
  for (const std::string& text : {std::string(), std::string("MUNGE:AwQ:"), std::string(100'000, 'A')}) {
    EXPECT_TRUE(absl::IsUnauthenticated(Verdict(text)));
  }
}

TEST_F(MungeTest, Munged_Absent_IsNoError) {
  const std::string nowhere = folder_ + "/nowhere";
  EXPECT_TRUE(absl::IsFailedPrecondition(NewCredential(nowhere).status()));
  TestServer server({.credentials = {.munge = true, .munge_socket = nowhere}});
  RunningJob launcher(TestServer::GrpcTo(server.port(), {.munge = true, .munge_socket = nowhere}));
}

// munged may be restarting or flooded: the server must not accept unauthenticated clients, now or later.
TEST_F(MungeTest, Munged_SilentAtFirstCall_CallersAreRefused) {
  munged().Signal(SIGKILL);
  munged().Wait();
  ASSERT_EQ(access(socket_.c_str(), F_OK), 0) << "the file stays";
  TestServer server({.credentials = WithMunge()});
  RawClient stranger(server.port());
  const absl::Status refused = stranger.ListJobs(0, "").status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_TRUE(absl::IsUnavailable(NewCredential(socket_).status()));
  StartMunged();
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.ListJobs(0, "").status()));
  RunningJob launcher(To(server));
}

TEST_F(MungeTest, Munged_StartedLater_CallersAreChecked) {
  InitLog("munge_test", LogLevel::kWarning);
  munged().Signal(SIGTERM);
  munged().Wait();
  ASSERT_NE(access(socket_.c_str(), F_OK), 0);
  TestServer server({.credentials = WithMunge()});
  RawClient stranger(server.port());
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(stranger.ListJobs(0, "").ok());
  EXPECT_TRUE(stranger.ListJobs(0, "").ok());
  StartMunged();
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.ListJobs(0, "").status()));
  FlushLog(SteadyNow() + Process::kPatience);
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (const std::string& line : {absl::StrCat("munge is not available on this host (there is no ", socket_, ")"),
                                  std::string("munge is now available on this host")}) {
    const size_t first = log.find(line);
    EXPECT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find(line, first + 1), std::string::npos) << "more than once\n" << log;
  }
}

TEST_F(MungeTest, Calls_WithoutCredential_AreRefusedAndJobContinues) {
  TestServer server({.credentials = WithMunge()});
  RunningJob launcher(To(server));
  for (const std::string user : {"", "nobody"}) {
    RawClient stranger(server.port(), user.empty() ? "" : absl::StrCat("Munge ", CredentialBy(user)));
    EXPECT_FALSE(stranger.Read().has_value());
    const absl::Status refused = stranger.Finish();
    EXPECT_EQ(refused.code(), user.empty() ? absl::StatusCode::kUnauthenticated : absl::StatusCode::kPermissionDenied)
        << refused;
  }
  RawClient stranger(server.port());
  ExpectGetsNothing(&stranger);
  launcher.End();
}

TEST_F(MungeTest, Launcher_WithoutMunge_ErrorSaysWhatToDo) {
  TestServer server({.credentials = WithMunge()});
  ClientLog log;
  const auto client = TestServer::GrpcTo(server.port())(log.Handler());
  EXPECT_THAT(AwaitRefusal(&log).reason, ::testing::AllOf(HasSubstr("srun"), HasSubstr("--token-file")));
}

TEST_F(MungeTest, Command_WithMunge_EventAndLogNameUser) {
  InitLog("munge_test", LogLevel::kInfo);
  EventLog events;
  Driver driver(Driver::Host::kLauncher, SavedState(), nullptr, &events);
  auto server = Server::Start(&driver, {"127.0.0.1:0"}, {.credentials = WithMunge()});
  const auto stub = v1::Control::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", (*server)->port()), grpc::InsecureChannelCredentials()));
  const auto drain = [&](const std::string& credential) {
    grpc::ClientContext context;
    if (!credential.empty()) context.AddMetadata("authorization", absl::StrCat("Munge ", credential));
    v1::DrainHostRequest request;
    request.set_host("node7");
    v1::CommandResponse response;
    return stub->DrainHost(&context, request, &response).error_code();
  };
  ::testing::internal::CaptureStderr();
  const grpc::StatusCode nobody = drain(CredentialBy("nobody")), none = drain(""), own = drain(CredentialBy("root"));
  FlushLog(SteadyNow() + Process::kPatience);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(nobody, grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(none, grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(own, grpc::StatusCode::OK);
  EXPECT_THAT(log, HasSubstr("host node7 drained by root"));
  const EventLog::Events drained = events.Read(0, 10);
  ASSERT_EQ(drained.size(), 1u);
  EXPECT_EQ(drained[0]->kind(), event_kind::kHostDrained);
  EXPECT_EQ(drained[0]->actor(), "root") << "not the address that the call came from";
}

// While munged is stopped, running jobs continue and new launchers wait; shutdown does not wait for munged.
TEST_F(MungeTest, Munged_Hangs_RunningJobContinuesNewLaunchersWait) {
  TestServer server({.credentials = WithMunge()});
  RunningJob running(To(server), "running");
  munged().Signal(SIGSTOP);
  TestLauncher late(To(server), "late", "node1", PatientSettings(1));
  RawClient stranger(server.port(), "Munge MUNGE:AwQ:");  // keeps the server's side waiting, too
  EXPECT_TRUE(stranger.WriteBytes(""));
  running.End();
  EXPECT_TRUE(late.log().empty());
  munged().Signal(SIGCONT);
  late.log().AwaitReconnected();
  late.SendJoin();
  late.AwaitRound();
  munged().Signal(SIGSTOP);
  server.Restart();  // meanwhile a launcher asks munged for a new credential
  munged().Signal(SIGKILL);
}

TEST_F(MungeTest, Munged_Restarted_LauncherReconnects) {
  TestServer server({.credentials = WithMunge()});
  RunningJob launcher(To(server));
  munged().Signal(SIGKILL);
  munged().Wait();
  server.Restart();
  launcher.Await<Disconnected>();
  StartMunged();
  launcher.log().AwaitReconnected();
  launcher.SendJoin();
  launcher.End();
}

}  // namespace
}  // namespace ddprun::rendezvous
