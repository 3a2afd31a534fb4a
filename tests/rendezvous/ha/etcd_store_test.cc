// Records in a real etcd: persisted, restored, fenced, bounded, and persisted while members of etcd die.
#include "rendezvous/ha/etcd_store.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/ha/leadership.h"
#include "tests/rendezvous/core/sample_records.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/security/certificates.h"
#include "tests/testing/process.h"

namespace ddprun::rendezvous {
namespace {

using ::ddprun::testing::Eventually;

SteadyTime Soon() { return SteadyNow() + absl::Seconds(30); }

grpc::Status Code(const absl::Status& status) {
  return status.ok() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "no answer");
}

// Forwards lease requests to etcd.
class LeasesOf final : public etcdserverpb::Lease::Service {
 public:
  explicit LeasesOf(EtcdClient* etcd) : etcd_(etcd) {}

  grpc::Status LeaseGrant(grpc::ServerContext*, const etcdserverpb::LeaseGrantRequest* request,
                          etcdserverpb::LeaseGrantResponse* answer) override {
    return Code(etcd_->LeaseGrant(absl::Seconds(request->ttl()), Soon(), answer));
  }
  grpc::Status LeaseRevoke(grpc::ServerContext*, const etcdserverpb::LeaseRevokeRequest* request,
                           etcdserverpb::LeaseRevokeResponse*) override {
    return Code(etcd_->LeaseRevoke(request->id(), Soon()));
  }
  grpc::Status LeaseKeepAlive(grpc::ServerContext*,
                              grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse,
                                                       etcdserverpb::LeaseKeepAliveRequest>* stream) override {
    etcdserverpb::LeaseKeepAliveRequest request;
    etcdserverpb::LeaseKeepAliveResponse answer;
    while (stream->Read(&request)) {
      answer.set_ttl(etcd_->LeaseKeepAlive(request.id(), Soon()).ok() ? 2 : 0);
      stream->Write(answer);
    }
    return grpc::Status::OK;
  }

 private:
  EtcdClient* const etcd_;
};

// Forwards transactions to etcd, and delays them or loses their answers as the test says, like a network or a member
// that is cut off from the others.
class LossyEtcd final : public etcdserverpb::KV::Service {
 public:
  enum class Fate { kPassed, kHeld, kAnswerLost };

  explicit LossyEtcd(EtcdClient* etcd, int port = 0) : etcd_(etcd), leases_(etcd) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    builder.RegisterService(&leases_);
    server_ = builder.BuildAndStart();
  }
  ~LossyEtcd() override { server_->Shutdown(); }

  std::string Endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  // Sets the fate of the next transaction. A held one reaches etcd only at Deliver; its caller gets no answer.
  void Set(Fate fate) { fate_ = fate; }
  // Sends the held transaction to etcd and returns the answer. REQUIRES: one is held.
  etcdserverpb::TxnResponse Deliver() {
    etcdserverpb::TxnResponse answer;
    EXPECT_TRUE(etcd_->Txn(*held_, Soon(), &answer).ok());
    return answer;
  }

  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* answer) override {
    const Fate fate = fate_.exchange(Fate::kPassed);
    if (fate == Fate::kHeld) held_ = *request;
    absl::Status status = fate == Fate::kHeld ? absl::OkStatus() : etcd_->Txn(*request, Soon(), answer);
    if (fate != Fate::kPassed) status = absl::UnavailableError("no answer");
    return Code(status);
  }
  // From now on, requests for jobs are not answered until the client gives up.
  void HoldJobs() { holds_jobs_ = true; }
  bool is_asked_for_jobs() const { return is_asked_for_jobs_; }

  grpc::Status Range(grpc::ServerContext* context, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    if (holds_jobs_ && absl::StrContains(request->key(), "/jobs/")) {
      is_asked_for_jobs_ = true;
      EXPECT_TRUE(Eventually([&] { return context->IsCancelled(); }));
    }
    return Code(etcd_->Range(*request, Soon(), response));
  }

 private:
  EtcdClient* const etcd_;
  LeasesOf leases_;
  std::atomic<bool> holds_jobs_ = false, is_asked_for_jobs_ = false;
  int port_ = 0;
  std::atomic<Fate> fate_ = Fate::kPassed;
  std::optional<etcdserverpb::TxnRequest> held_;  // written before the caller is answered, read after
  std::unique_ptr<grpc::Server> server_;
};

// One cluster for all tests; each test has its own key prefix.
class EtcdStoreTest : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { cluster_.reset(); }

  void SetUp() override {
    if (!testing::EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
    if (cluster_ == nullptr) cluster_ = std::make_unique<testing::EtcdCluster>();
    EtcdOptions options;
    for (int i = 0; i < testing::EtcdCluster::kMembers; ++i) options.endpoints.push_back(cluster_->Endpoint(i));
    absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // Makes another server the leader; returns the epoch of its key.
  int64_t Elect() {
    etcdserverpb::TxnRequest txn;
    AddDelete(keys_.Leader(), &txn);
    etcdserverpb::TxnResponse answer;
    EXPECT_TRUE(client_->Txn(txn, Soon(), &answer).ok());
    etcdserverpb::TxnRequest put;
    *put.add_compare() = keys_.LeaderIs(0);
    AddPut(keys_.Leader(), "a:1", &put);
    AddPut(keys_.Epoch(), "a:1", &put);
    EXPECT_TRUE(client_->Txn(put, Soon(), &answer).ok());
    EXPECT_TRUE(answer.succeeded());
    return answer.header().revision();
  }

  std::unique_ptr<EtcdStore> Open(int64_t epoch) { return OpenOver(client_.get(), epoch); }

  std::unique_ptr<EtcdStore> OpenOver(EtcdClient* client, int64_t epoch) {
    auto store = EtcdStore::Open(client, keys_,
                                 {.epoch = epoch, .owns = [] { return true; }, .on_fenced = [this] { ++fenced_; }});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  void SaveRecord(EtcdStore* store, JobRecord record) {
    store->SaveRecord(std::make_shared<const JobRecord>(std::move(record)), "", [this] { ++safe_; });
  }

  // Waits until so many records are safe.
  void SaveSafely(EtcdStore* store, JobRecord record, int safe) {
    SaveRecord(store, std::move(record));
    ASSERT_TRUE(Eventually([&] { return safe_ == safe; }));
  }

  static std::unique_ptr<testing::EtcdCluster> cluster_;
  const EtcdKeys keys_{absl::StrCat("/test/", ::testing::UnitTest::GetInstance()->current_test_info()->name())};
  std::unique_ptr<EtcdClient> client_;
  std::atomic<int> safe_ = 0;
  std::atomic<int> fenced_ = 0;
};

std::unique_ptr<testing::EtcdCluster> EtcdStoreTest::cluster_;

TEST_F(EtcdStoreTest, NewLeader_FindsWhatTheLastOneKept) {
  auto store = Open(Elect());
  EXPECT_TRUE(store->TakeSaved().jobs.empty());
  for (uint64_t round = 1; round <= 3; ++round) SaveRecord(store.get(), LiveRecord("live", round));
  SaveRecord(store.get(), EndedRecord("zz first", 7));
  SaveRecord(store.get(), EndedRecord("aa second", 8));
  store->Stop();
  EXPECT_EQ(safe_, 5);
  const SavedState saved = Open(Elect())->TakeSaved();
  ASSERT_EQ(saved.jobs.size(), 3u);
  EXPECT_EQ(saved.jobs[0].job_id(), "zz first") << "in the order in which they ended";
  EXPECT_EQ(saved.jobs[1].job_id(), "aa second");
  JobRecord live = LiveRecord("live", 3);
  const absl::Duration passed = ToDuration(saved.jobs[2].age()) - ToDuration(live.age());
  EXPECT_LT(passed, absl::Minutes(1));
  AddAge(passed, &live);
  EXPECT_EQ(saved.jobs[2], live);
}

TEST_F(EtcdStoreTest, Load_Sigterm_EndsAtOnce) {
  LossyEtcd etcd(client_.get());
  etcd.HoldJobs();
  testing::Process server({"rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--lease-ttl=2",
                           "--etcd=" + etcd.Endpoint(), "--etcd-prefix=/test/told_to_end/"});
  ASSERT_TRUE(Eventually([&] { return etcd.is_asked_for_jobs(); })) << server.Err();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.Err();
  EXPECT_EQ(cluster_->Get("/test/told_to_end/leader"), "") << "the leadership is given back";
}

// gRPC backs off after refused connections; the client must still connect once etcd listens.
TEST_F(EtcdStoreTest, ConnectionFailedAMomentAgo_IsTriedAgain) {
  const int port = testing::FreePort();
  const auto client = EtcdClient::Create({.endpoints = {absl::StrCat("127.0.0.1:", port)}});
  const int64_t epoch = Elect();
  etcdserverpb::RangeRequest request;
  request.set_key("x");
  etcdserverpb::RangeResponse response;
  // Each attempt lengthens the backoff.
  for (const SteadyTime began = SteadyNow(); SteadyNow() < began + absl::Milliseconds(500);) {
    EXPECT_TRUE(absl::IsUnavailable((*client)->Range(request, Soon(), &response)));
  }
  LossyEtcd etcd(client_.get(), port);
  EXPECT_NE(OpenOver(client->get(), epoch), nullptr);
}

// No current server writes such a record; a newer one might.
TEST_F(EtcdStoreTest, RecordThatCannotBeRead_IsSetAsideAlone) {
  auto store = Open(Elect());
  const SteadyTime opened = SteadyNow();
  JobRecord odd = LiveRecord("odd", 1);
  odd.mutable_round()->set_master_port(70'000);
  SaveRecord(store.get(), odd);
  ASSERT_TRUE(Eventually([&] { return safe_ == 1 && SteadyNow() > opened + absl::Milliseconds(20); }));
  SaveRecord(store.get(), LiveRecord("job", 1));
  store->Stop();
  etcdserverpb::TxnRequest txn;
  AddPut(keys_.Job("torn"), "\xff", &txn);
  etcdserverpb::TxnResponse answer;
  ASSERT_TRUE(client_->Txn(txn, Soon(), &answer).ok());
  for (int i = 0; i < 2; ++i) {
    store = Open(Elect());
    const SavedState saved = store->TakeSaved();
    ASSERT_EQ(saved.jobs.size(), i == 0 ? 1u : 2u);
    EXPECT_EQ(saved.jobs[0].job_id(), "job");
    EXPECT_EQ(saved.earlier_servers, static_cast<uint64_t>(i + 1));
    if (i == 0) {
      EXPECT_EQ(saved.longest_life, absl::ZeroDuration()) << "jobs without a record may have one";
    }
    SaveRecord(store.get(), LiveRecord("odd", 2));
    store->Stop();
    EXPECT_EQ(safe_, 3 + i);
  }
  for (const char* job : {"odd", "torn"}) {
    EXPECT_NE(cluster_->Get(keys_.Damaged(job)), "");
  }
  EXPECT_EQ(cluster_->Get(keys_.Job("torn")), "");
}

TEST_F(EtcdStoreTest, AnotherLeads_NothingIsWrittenAndNothingIsSafe) {
  const int64_t epoch = Elect();
  auto old = Open(epoch);
  SaveSafely(old.get(), LiveRecord("job", 1), 1);
  auto store = Open(Elect());
  SaveSafely(store.get(), LiveRecord("job", 2), 2);
  SaveRecord(old.get(), LiveRecord("job", 9));
  ASSERT_TRUE(Eventually([&] { return fenced_ == 1; }));
  old->Stop();
  store->Stop();
  EXPECT_EQ(safe_, 2);
  EXPECT_EQ(Open(Elect())->TakeSaved().jobs.at(0).round().number(), 2u);
  const auto late = EtcdStore::Open(client_.get(), keys_, {epoch, [] { return true; }, [] {}});
  EXPECT_TRUE(absl::IsFailedPrecondition(late.status())) << late.status();
}

TEST_F(EtcdStoreTest, WriteThatEtcdAppliesLate_ChangesNothing) {
  LossyEtcd lossy(client_.get());
  const auto client = EtcdClient::Create({.endpoints = {lossy.Endpoint()}});
  auto store = OpenOver(client->get(), Elect());
  lossy.Set(LossyEtcd::Fate::kHeld);
  SaveRecord(store.get(), LiveRecord("job", 1));
  ASSERT_TRUE(Eventually([&] { return safe_ == 1; })) << "sent again";
  SaveSafely(store.get(), LiveRecord("job", 2), 2);
  EXPECT_FALSE(lossy.Deliver().succeeded());
  SaveRecord(store.get(), LiveRecord("other", 1));
  store->Stop();
  EXPECT_EQ(safe_, 3);
  EXPECT_EQ(fenced_, 0);
  EXPECT_EQ(Open(Elect())->TakeSaved().jobs.at(0).round().number(), 2u);
}

TEST_F(EtcdStoreTest, WriteWhoseAnswerIsLost_IsSafeWhenItIsSentAgain) {
  LossyEtcd lossy(client_.get());
  const auto client = EtcdClient::Create({.endpoints = {lossy.Endpoint()}});
  auto store = OpenOver(client->get(), Elect());
  for (uint64_t round = 1; round <= 2; ++round) {
    lossy.Set(LossyEtcd::Fate::kAnswerLost);
    SaveSafely(store.get(), LiveRecord("job", round), static_cast<int>(round));
  }
  store->Stop();
  EXPECT_EQ(fenced_, 0);
  EXPECT_EQ(Open(Elect())->TakeSaved().jobs.at(0).round().number(), 2u);
}

TEST_F(EtcdStoreTest, EndedJobs_OldestAreForgottenButNotTheirRound) {
  auto store = Open(Elect());
  const int jobs = static_cast<int>(EndedJobs::kMaxJobs) + 5;
  SaveRecord(store.get(), EndedRecord("oldest", 1'000'000));
  for (int i = 1; i < jobs; ++i) SaveRecord(store.get(), EndedRecord(absl::StrCat("job", i), 5));
  SaveRecord(store.get(), LiveRecord("job1", 6));  // lives again
  store->Stop();
  EXPECT_EQ(safe_, jobs + 1);
  const SavedState saved = Open(Elect())->TakeSaved();
  EXPECT_EQ(saved.forgotten_round, 1'000'001u);
  EXPECT_EQ(saved.jobs.size(), EndedJobs::kMaxJobs + 1);
  EXPECT_EQ(saved.jobs.back().job_id(), "job1");
}

TEST_F(EtcdStoreTest, Write_RecordTooLarge_IsReportedAndOthersContinue) {
  auto store = Open(Elect());
  std::map<std::string, std::string> troubles;
  store->SetErrorHandler([&](const std::string& text) { ADD_FAILURE() << "it is of one job: " << text; });
  store->SetJobErrorHandler([&](const std::string& job_id, const std::string& text) { troubles[job_id] = text; });
  JobRecord large = LiveRecord("large", 1);
  FillRound(30'000, &large);
  SaveRecord(store.get(), large);
  SaveSafely(store.get(), LiveRecord("small", 1), 1);
  SaveRecord(store.get(), large);
  SaveSafely(store.get(), LiveRecord("small", 2), 2);
  // A record that can be persisted includes the contents of the earlier ones.
  SaveSafely(store.get(), LiveRecord("large", 2), 5);
  SaveRecord(store.get(), large);
  store->Stop();
  EXPECT_EQ(safe_, 5);
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_NE(troubles["large"].find("can't persist this job in etcd"), std::string::npos) << troubles["large"];
  EXPECT_NE(troubles["large"].find("--max-request-bytes"), std::string::npos) << troubles["large"];
  EXPECT_EQ(Open(Elect())->TakeSaved().jobs.size(), 2u);
}

// The record of an ended job has more per node than that of its round, and its first cause may be long.
TEST_F(EtcdStoreTest, RecordOfAnEndedJobIsTooLarge_IsShortened) {
  auto store = Open(Elect());
  store->SetJobErrorHandler([&](const std::string&, const std::string& text) { ADD_FAILURE() << text; });
  JobRecord record = LiveRecord("large", 1);
  FillRound(15'000, &record);
  SaveSafely(store.get(), record, 1);
  WorkerFailure failure = record.round().leave_cause();
  failure.set_traceback(std::string(kMaxTracebackBytes, 't'));
  EndWith(failure, &record);
  SaveRecord(store.get(), record);
  store->Stop();
  EXPECT_EQ(safe_, 2);
  const SavedState saved = Open(Elect())->TakeSaved();
  ASSERT_EQ(saved.jobs.size(), 1u);
  EXPECT_EQ(saved.jobs[0].told_size(), record.told_size());
  EXPECT_EQ(saved.jobs[0].verdict().reason(), record.verdict().reason());
}

TEST_F(EtcdStoreTest, Write_EtcdMembersDie_ContinuesWithMajority) {
  auto store = Open(Elect());
  std::atomic<bool> troubled = false;
  store->SetErrorHandler([&](const std::string& text) { troubled = !text.empty(); });
  const int first = cluster_->Leader();
  cluster_->Kill(first);
  SaveSafely(store.get(), LiveRecord("job", 1), 1);
  const int second = (first + 1) % testing::EtcdCluster::kMembers;
  cluster_->Kill(second);
  SaveRecord(store.get(), LiveRecord("job", 2));
  ASSERT_TRUE(Eventually([&] { return troubled.load(); }));
  EXPECT_EQ(safe_, 1);
  cluster_->Restart(first);
  cluster_->Restart(second);
  ASSERT_TRUE(Eventually([&] { return safe_ == 2; }));
  EXPECT_FALSE(troubled);
  store->Stop();
  EXPECT_EQ(Open(Elect())->TakeSaved().jobs.at(0).round().number(), 2u);
}

TEST_F(EtcdStoreTest, AskForLeader_NoLeader_NamesTheLatest) {
  EXPECT_EQ(AskForLeader(client_.get(), keys_, Soon())->epoch, 0);
  const int64_t epoch = Elect();
  absl::StatusOr<LeaderView> view = AskForLeader(client_.get(), keys_, Soon());
  EXPECT_EQ(view->epoch, epoch);
  EXPECT_EQ(view->address, "a:1");
  etcdserverpb::TxnRequest txn;
  AddDelete(keys_.Leader(), &txn);
  etcdserverpb::TxnResponse answer;
  ASSERT_TRUE(client_->Txn(txn, Soon(), &answer).ok());
  view = AskForLeader(client_.get(), keys_, Soon());
  EXPECT_EQ(view->epoch, epoch);
  EXPECT_EQ(view->address, "");
}

TEST_F(EtcdStoreTest, Open_WrongEndpointOrFile_ErrorNamesIt) {
  EXPECT_NE(EtcdClient::Create({}).status().message().find("no endpoint"), std::string::npos);
  const absl::Status file = EtcdClient::Create({.endpoints = {"127.0.0.1:1"}, .ca_file = "/no/such/file"}).status();
  EXPECT_NE(file.message().find("--etcd-cacert=/no/such/file"), std::string::npos) << file;
  auto nobody = EtcdClient::Create({.endpoints = {"127.0.0.1:1"}});
  const absl::Status status = AskForLeader(nobody->get(), keys_, SteadyNow() + absl::Seconds(2)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("127.0.0.1:1: "), std::string::npos) << status;
}

// An etcd that accepts only small requests.
class EtcdLimitTest : public EtcdStoreTest {
 protected:
  void SetUp() override {
    if (!testing::EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
    const std::string address = absl::StrCat("127.0.0.1:", testing::FreePort());
    etcd_ = std::make_unique<testing::Process>(
        testing::EtcdCluster::SoleMember(address, dir_.File("data"), {"--max-request-bytes=3000"}));
    // A new client each time: without a server in this process nothing drives the connection of an old one.
    ASSERT_TRUE(Eventually([&] {
      client_ = *EtcdClient::Create({.endpoints = {address}});
      return AskForLeader(client_.get(), keys_, SteadyNow() + absl::Seconds(5)).ok();
    })) << etcd_->Err();
  }

  const testing::TempDir dir_;
  std::unique_ptr<testing::Process> etcd_;
};

TEST_F(EtcdLimitTest, BatchIsTooLarge_RecordsAreWrittenOneByOne) {
  auto store = Open(Elect());
  store->SetJobErrorHandler([&](const std::string&, const std::string& text) { ADD_FAILURE() << text; });
  constexpr int kJobs = 60;
  for (int i = 0; i < kJobs; ++i) SaveRecord(store.get(), LiveRecord(absl::StrCat("job", i), 1));
  ASSERT_TRUE(Eventually([&] { return safe_ == kJobs; }));
  store->Stop();
  EXPECT_EQ(Open(Elect())->TakeSaved().jobs.size(), static_cast<size_t>(kJobs));
}

TEST(EtcdTlsTest, Tls_BothSides_AreAuthenticated) {
  if (!testing::EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
  testing::TestCa ca(testing::NewFolder("etcd-ca")), other(testing::NewFolder("other-ca"));
  ca.Issue("etcd", "IP:127.0.0.1");
  ca.Issue("client", "DNS:client");
  other.Issue("client", "DNS:client");
  const testing::TempDir dir;
  const std::string address = absl::StrCat("127.0.0.1:", testing::FreePort());
  testing::Process etcd(
      testing::EtcdCluster::SoleMember(address, dir.File("data"),
                                       {"--cert-file=" + ca.cert("etcd"), "--key-file=" + ca.key("etcd"),
                                        "--trusted-ca-file=" + ca.ca(), "--client-cert-auth"},
                                       "https"));
  const EtcdKeys keys("/test/");
  const auto ask = [&](const EtcdOptions& options, absl::Duration patience) {
    return AskForLeader(EtcdClient::Create(options)->get(), keys, SteadyNow() + patience).status();
  };
  const EtcdOptions good = {{address}, ca.ca(), ca.cert("client"), ca.key("client")};
  ASSERT_TRUE(Eventually([&] { return ask(good, absl::Seconds(5)).ok(); })) << etcd.Err();
  EXPECT_TRUE(absl::IsUnavailable(ask({{address}, ca.ca()}, absl::Seconds(1)))) << "no certificate";
  EXPECT_TRUE(
      absl::IsUnavailable(ask({{address}, ca.ca(), other.cert("client"), other.key("client")}, absl::Seconds(1))));
  const absl::Status wrong = ask({{address}, other.ca(), ca.cert("client"), ca.key("client")}, absl::Seconds(1));
  EXPECT_NE(wrong.message().find("handshake failed"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace ddprun::rendezvous
