// A server with credentials serves clients that have them and refuses all others.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/local_client.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/server.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/test_launcher.h"
#include "tests/security/certificates.h"
#include "tests/security/running_job.h"
#include "tests/testing/text_proto.h"

// OpenSSL's memory of each thread. gRPC's threads may still run when the process exits, and LeakSanitizer then reports
// it; credential_files_test would find leaks of our own.
extern "C" const char* __lsan_default_suppressions() { return "leak:CRYPTO_zalloc\nleak:ERR_add_error_vdata\n"; }

namespace ddprun::rendezvous {
namespace {

using testing::NewFolder;
using testing::StallReaders;
using testing::TestCa;
using testing::WriteFile;

const char kOld[] = "an-old-token-of-this-test";
const char kNew[] = "a-new-token-of-this-test";

Disconnected RefusalOf(int port, const Credentials& credentials) {
  ClientLog log;
  const auto client = TestServer::GrpcTo(port, credentials)(log.Handler());
  return AwaitRefusal(&log);
}

TEST(TokenTest, Token_WrongOrMissing_IsRefusedOnce) {
  TestServer server({.credentials = {.token = kOld}});
  const Disconnected wrong = RefusalOf(server.port(), {.token = kNew});
  EXPECT_THAT(wrong.reason, HasSubstr("token"));
  EXPECT_THAT(wrong.reason, Not(HasSubstr(kNew)));
  EXPECT_THAT(RefusalOf(server.port(), {}).reason, HasSubstr("token"));
}

TEST(TokenTest, Calls_WithoutCredential_AreRefused) {
  TestServer server({.credentials = {.token = kOld}});
  RunningJob launcher(TestServer::GrpcTo(server.port(), {.token = kOld}));
  RawClient stranger(server.port());
  ExpectGetsNothing(&stranger);
  EXPECT_FALSE(stranger.Read().has_value());
  EXPECT_TRUE(absl::IsUnauthenticated(stranger.Finish()));
  launcher.End();
}

TEST(TokenTest, Rotation_RunningJob_Continues) {
  const std::string path = NewFolder("token") + "/token";
  WriteFile(path, kOld);
  TestServer server({.credentials = {.token_file = path}});
  RunningJob running(TestServer::GrpcTo(server.port(), {.token = kOld}), "running");
  WriteFile(path, absl::StrCat(kNew, "\n", kOld, "\n"));
  for (const char* token : {kOld, kNew}) {
    RunningJob(TestServer::GrpcTo(server.port(), {.token = token}), token).End();
  }
  WriteFile(path, kNew);
  EXPECT_THAT(RefusalOf(server.port(), {.token = kOld}).reason, HasSubstr("token"));
  running.End();
}

// Permissions of each role, and the actor that events name.
class RolesTest : public ::testing::Test {
 protected:
  static std::string TokenOf(const std::string& name) { return absl::StrCat("the-token-of-", name); }
  static std::string TokenFile() {
    std::string path = NewFolder("roles") + "/token", text;
    for (const char* line : {"read:page", "launcher:alice", "launcher:bob", "read:alice", "admin:ops"}) {
      absl::StrAppend(&text, line, " ", TokenOf(line), "\n");
    }
    WriteFile(path, absl::StrCat(text, kOld, "\n"));
    return path;
  }

  RolesTest() : driver_(Driver::Host::kDaemon, SavedState(), nullptr, &events_) {
    auto server = Server::Start(&driver_, {"127.0.0.1:0"}, {.credentials = {.token_file = TokenFile()}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const auto channel =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials());
    control_ = v1::Control::NewStub(channel);
    queries_ = v1::Rendezvous::NewStub(channel);
  }

  TestLauncher::NewClient ClientWith(const std::string& token) const {
    return TestServer::GrpcTo(server_->port(), {.token = token});
  }

  template <typename Stub, typename Request, typename Response>
  grpc::Status Call(const std::string& token, const std::unique_ptr<Stub>& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), Request request) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    Response response;
    return (stub.get()->*method)(&context, request, &response);
  }
  // `request`: in protobuf's text format.
  template <typename Request>
  grpc::Status Command(const std::string& token, const std::string& request,
                       grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                 v1::CommandResponse*)) {
    return Call(token, control_, method, TextProto<Request>(request));
  }
  grpc::Status Stop(const std::string& token) { return Command(token, "job_id: 'job'", &v1::Control::Stub::StopJob); }
  grpc::Status Watch(const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    v1::Event event;
    const auto stream = control_->WatchEvents(&context, v1::WatchEventsRequest());
    while (stream->Read(&event)) {
    }
    return stream->Finish();
  }

  EventLog events_;
  Driver driver_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Rendezvous::Stub> queries_;
};

TEST_F(RolesTest, Calls_EachRole_FollowTable) {
  RunningJob running(ClientWith(TokenOf("launcher:alice")));
  EXPECT_EQ(driver_.GetJob("job")->owner(), "alice");
  const struct {
    std::string token;
    bool joins, owns, drains;
  } rows[] = {{TokenOf("read:page"), false, false, false},
              {TokenOf("read:alice"), false, false, false},  // the owner's name is not enough
              {TokenOf("launcher:bob"), true, false, false},
              {TokenOf("launcher:alice"), true, true, false},
              {TokenOf("admin:ops"), true, true, true},
              {kOld, true, true, true}};
  const auto code = [](bool allowed, grpc::StatusCode then = grpc::StatusCode::OK) {
    return allowed ? then : grpc::StatusCode::PERMISSION_DENIED;
  };
  for (const auto& [token, joins, owns, drains] : rows) {
    SCOPED_TRACE(token);
    EXPECT_TRUE(Call(token, queries_, &v1::Rendezvous::Stub::ListJobs, v1::ListJobsRequest()).ok());
    const auto get = TextProto<v1::GetJobRequest>("job_id: 'job'");
    EXPECT_TRUE(Call(token, queries_, &v1::Rendezvous::Stub::GetJob, get).ok());
    EXPECT_TRUE(Call(token, control_, &v1::Control::Stub::ListHosts, v1::ListHostsRequest()).ok());
    EXPECT_TRUE(Watch(token).ok());
    if (joins) {
      RunningJob(ClientWith(token), token).End();
    } else {
      EXPECT_TRUE(absl::StrContains(RefusalOf(server_->port(), {.token = token}).reason,
                                    "has role read; this call requires role launcher or admin"));
    }
    EXPECT_EQ(Command(token, "job_id: 'job' min_nodes: 1 max_nodes: 1", &v1::Control::Stub::ResizeJob).error_code(),
              code(owns));
    EXPECT_EQ(Command(token, "job_id: 'job' node: 'no such'", &v1::Control::Stub::KickNode).error_code(),
              code(owns, grpc::StatusCode::NOT_FOUND));
    EXPECT_EQ(Call(token, control_, &v1::Control::Stub::Inspect,
                   TextProto<v1::InspectRequest>("job_id: 'job' inspect { ranks: 99 }"))
                  .error_code(),
              code(owns, grpc::StatusCode::INVALID_ARGUMENT));
    EXPECT_EQ(Command(token, "host: 'node7'", &v1::Control::Stub::DrainHost).error_code(), code(drains));
    EXPECT_EQ(Command(token, "host: 'node7'", &v1::Control::Stub::UndrainHost).error_code(), code(drains));
    if (owns) continue;
    EXPECT_EQ(Stop(token).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_EQ(Command(TokenOf("launcher:bob"), "host: 'node7'", &v1::Control::Stub::DrainHost).error_message(),
            "the token of bob has role launcher; this call requires role admin");
  EXPECT_EQ(Stop(TokenOf("launcher:bob")).error_message(),
            "the token of bob has role launcher; job job is owned by alice, so this call requires role admin");
  EXPECT_EQ(Stop("no-token-of-this-file").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Stop(TokenOf("launcher:alice")).ok());
  EXPECT_EQ(running.Await<Finish>().verdict().reason(), "stopped by alice");
  std::vector<std::string> drained_by;
  for (const auto& event : events_.Read(0, 1000)) {
    if (event->kind() == event_kind::kHostDrained) drained_by.push_back(event->actor());
  }
  EXPECT_EQ(drained_by, (std::vector<std::string>{"ops", "127.0.0.1"}));
}

// The launcher that hosts the server connects without a token.
TEST_F(RolesTest, Role_HostingLauncher_OwnsItsJob) {
  const std::string own = OwnName({.token_file = TokenFile()});
  EXPECT_EQ(own, "page");
  EXPECT_EQ(OwnName({.token = kOld}), "");
  TestLauncher launcher([&](Client::Handler handler) { return NewLocalClient(&driver_, std::move(handler), own); },
                        "job", "node1", PatientSettings(1));
  BeginRound({&launcher});
  EXPECT_EQ(driver_.GetJob("job")->owner(), "page");
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

TEST_F(TlsTest, Tls_ServerCertificateAndToken_IsServed) {
  Credentials credentials = Of(ca_, "server", ca_);
  credentials.tls_ca.clear();
  credentials.token = kOld;
  TestServer server({.credentials = credentials});
  RunningJob(TestServer::GrpcTo(server.port(), {.token = kOld, .tls_ca = ca_.ca()})).End();
  EXPECT_THAT(RefusalOf(server.port(), {.tls_ca = ca_.ca()}).reason, HasSubstr("token"));
}

// The client first retries, as certificates may be about to be renewed, and then gives up.
TEST_F(TlsTest, Tls_InvalidCertificates_AreRefusedAfterRetries) {
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
    EXPECT_THAT(reason, HasSubstr("TLS handshake failed"));
    printf("%s: %s\n", c->what, reason.c_str());
  }
}

TEST_F(TlsTest, Tls_PlaintextStranger_IsRefused) {
  TestServer server({.credentials = Of(ca_, "server", ca_)});
  RawClient stranger(server.port());
  EXPECT_FALSE(stranger.ListJobs(0, "").ok());
  EXPECT_FALSE(stranger.Health("").ok());
  EXPECT_FALSE(stranger.Reflect().ok());
  EXPECT_FALSE(stranger.Read().has_value());
}

TEST_F(TlsTest, Tls_NameNotAllowed_IsRefused) {
  Credentials credentials = Of(ca_, "server", ca_);
  credentials.tls_allowed_names = {"node1.cluster"};
  TestServer server({.credentials = credentials});
  RunningJob(TestServer::GrpcTo(server.port(), Of(ca_, "node1", ca_))).End();
  const std::string reason = RefusalOf(server.port(), Of(ca_, "node2", ca_)).reason;
  EXPECT_THAT(reason, HasSubstr("--tls-allowed-names"));
}

TEST_F(TlsTest, Rotation_RunningJob_ContinuesAndNewClientsAreServed) {
  const std::string folder = NewFolder("rotating");
  auto before = std::make_unique<TestCa>(folder);
  before->Issue("server", "IP:127.0.0.1");
  before->Issue("node1", "DNS:node1");
  const Credentials credentials = Of(*before, "server", *before);
  const Credentials client = Of(*before, "node1", *before);
  TestServer server({.credentials = credentials});
  RunningJob running(TestServer::GrpcTo(server.port(), client), "running");
  // New CA, certificates and keys in the same files.
  TestCa after(folder);
  after.Issue("server", "IP:127.0.0.1");
  after.Issue("node1", "DNS:node1");
  ClientLog log;
  const auto other = TestServer::GrpcTo(server.port(), client)(log.Handler());
  log.AwaitReconnected();  // once the server has read the new files, too
  running.End();
}

TEST_F(TlsTest, Rotation_ClientFilesStall_ReconnectsWithLastRead) {
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

}  // namespace
}  // namespace ddprun::rendezvous
