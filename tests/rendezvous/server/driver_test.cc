// Tests the driver with fake sessions and the in-process client. This binary contains no gRPC.

#include "rendezvous/server/driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "rendezvous/client/local_client.h"
#include "tests/rendezvous/server/samples.h"
#include "tests/rendezvous/server/test_launcher.h"

namespace ddprun::rendezvous {
namespace {

// Records the messages sent. Fails the test if two threads call Send at a time, or if it is called after End.
class RecordingSession final : public Session {
 public:
  void Send(const ServerMessage& message) override {
    const bool alone = !busy_.exchange(true);
    EXPECT_TRUE(alone);
    {
      MutexLock lock(&mutex_);
      EXPECT_FALSE(end_.has_value());
      messages_.push_back(message);
    }
    changed_.NotifyAll();
    busy_ = false;
  }
  void End(const absl::Status& status) override {
    {
      MutexLock lock(&mutex_);
      if (!end_.has_value()) end_ = status;
    }
    changed_.NotifyAll();
  }

  // Waits for the n-th message of type T, from 0.
  template <typename T>
  T Await(int n = 0) {
    MutexLock lock(&mutex_);
    while (true) {
      int seen = 0;
      for (const ServerMessage& message : messages_) {
        if (std::holds_alternative<T>(message) && seen++ == n) return std::get<T>(message);
      }
      changed_.Wait(&mutex_);
    }
  }
  // Number of Waiting messages with this reason so far.
  int CountReason(const std::string& reason) {
    MutexLock lock(&mutex_);
    return CountReasonLocked(reason);
  }
  void AwaitReason(const std::string& reason) {
    MutexLock lock(&mutex_);
    while (CountReasonLocked(reason) == 0) changed_.Wait(&mutex_);
  }
  absl::Status AwaitEnd() {
    MutexLock lock(&mutex_);
    while (!end_.has_value()) changed_.Wait(&mutex_);
    return *end_;
  }
  size_t count() {
    MutexLock lock(&mutex_);
    return messages_.size();
  }

 private:
  int CountReasonLocked(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::count_if(messages_.begin(), messages_.end(), [&](const ServerMessage& message) {
      const Waiting* waiting = std::get_if<Waiting>(&message);
      return waiting != nullptr && waiting->reason() == reason;
    });
  }

  std::atomic<bool> busy_ = false;
  Mutex mutex_;
  CondVar changed_;
  std::vector<ServerMessage> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

Join NodeJoin(const std::string& host, JobSettings settings, uint64_t incarnation = 1) {
  Join join = NewJoin();
  join.set_job_id("job");
  join.set_node_id(host);
  join.set_incarnation(incarnation);
  join.set_host(host);
  join.set_address(host);
  join.set_store_port(40'000);
  join.set_session_secret("secret of " + host + " and more");
  *join.mutable_settings() = settings;
  return join;
}

std::shared_ptr<RecordingSession> JoinTo(Driver* driver, const Join& join) {
  auto session = std::make_shared<RecordingSession>();
  driver->OnMessage(session, join);
  return session;
}

std::shared_ptr<RecordingSession> JoinTo(Driver* driver, const std::string& host, const JobSettings& settings) {
  return JoinTo(driver, NodeJoin(host, settings));
}

// Acknowledges a record when the test calls MakeOneSafe.
class SlowStore final : public StateStore {
 public:
  void SaveRecord(std::shared_ptr<const JobRecord> record, std::string, std::function<void()> safe) override {
    records_.push_back(std::move(record));
    unsafe_.push_back(std::move(safe));
  }
  void SetErrorHandler(std::function<void(const std::string&)> report) override { report_ = std::move(report); }
  void SetJobErrorHandler(std::function<void(const std::string&, const std::string&)> report) override {
    report_job_ = std::move(report);
  }
  void SayJobTrouble(const std::string& job_id, const std::string& trouble) { report_job_(job_id, trouble); }
  void MakeOneSafe() {
    const std::function<void()> safe = std::move(unsafe_.front());
    unsafe_.pop_front();
    safe();
  }
  void SayTrouble(const std::string& trouble) { report_(trouble); }
  size_t unsafe() const { return unsafe_.size(); }
  const JobRecord& newest() const { return *records_.back(); }

 private:
  std::vector<std::shared_ptr<const JobRecord>> records_;
  std::deque<std::function<void()>> unsafe_;
  std::function<void(const std::string&)> report_;
  std::function<void(const std::string&, const std::string&)> report_job_;
};

std::string Kinds(const EventLog& log) {
  std::string text;
  for (const auto& event : log.Read(0, 100)) absl::StrAppend(&text, event->kind(), " ");
  return text;
}

class StateStoreTest : public ::testing::Test {
 protected:
  SlowStore store_;
  EventLog events_;
  Driver driver_{Driver::Host::kDaemon, SavedState(), &store_, &events_};
};

TEST_F(StateStoreTest, Effects_AfterRecord_WaitUntilItIsPersisted) {
  JobSettings settings = PatientSettings(2);
  settings.set_max_restarts(1);
  auto a = std::make_shared<RecordingSession>();
  auto b = std::make_shared<RecordingSession>();
  driver_.OnMessage(a, NodeJoin("node1", settings));
  EXPECT_EQ(store_.unsafe(), 0) << "there is nothing to keep yet";
  driver_.OnMessage(b, NodeJoin("node2", settings));
  ASSERT_EQ(store_.unsafe(), 1);
  EXPECT_EQ(store_.newest().round().number(), 1);
  EXPECT_EQ(a->count(), 1) << "only the Welcome, from before";
  driver_.OnMessage(a, Heartbeat{});
  EXPECT_EQ(a->count(), 2) << "its answer depends on no record";
  EXPECT_EQ(Kinds(events_), "job.created node.joined node.joined ");
  store_.MakeOneSafe();
  a->Await<Assign>();
  b->Await<Assign>();
  EXPECT_EQ(Kinds(events_), "job.created node.joined node.joined round.assigned ");

  WorkerFailed failed = NewWorkerFailed(1, NewFailure());
  failed.mutable_failure()->set_exit_code(3);
  driver_.OnMessage(a, failed);
  driver_.OnMessage(a, NewReady(1, 40'001));
  driver_.OnMessage(b, NewReady(1, 40'002));
  ASSERT_EQ(store_.unsafe(), 2) << "the end of round 1, and round 2";
  EXPECT_EQ(store_.newest().restarts_charged(), 1);
  EXPECT_EQ(b->count(), 2);
  store_.MakeOneSafe();
  b->Await<StopRound>();
  EXPECT_EQ(b->count(), 3) << "round 2 is not safe yet";
  store_.MakeOneSafe();
  EXPECT_EQ(b->Await<Assign>(1).assignment().round(), 2);
  driver_.OnClosed(a);
  driver_.OnClosed(b);
}

TEST_F(StateStoreTest, Effects_OfOtherJobs_AreNotDelayed) {
  const auto held = JoinTo(&driver_, "node1", PatientSettings(1));
  ASSERT_EQ(store_.unsafe(), 1);
  Join join = NodeJoin("node2", PatientSettings(1));
  join.set_job_id(kServerRecordId);  // reserved
  auto other = std::make_shared<RecordingSession>();
  driver_.OnMessage(other, join);
  other->Await<Rejected>();
  EXPECT_EQ(held->count(), 1);
  driver_.OnClosed(held);
  driver_.OnClosed(other);
  store_.MakeOneSafe();  // no session is left
}

TEST_F(StateStoreTest, StoreError_LaunchersThatWait_AreNotified) {
  const std::string told = "the rendezvous server can't write: disk full";
  std::vector<std::shared_ptr<RecordingSession>> sessions;
  const auto join = [&](const std::string& job, const std::string& host) {
    sessions.push_back(std::make_shared<RecordingSession>());
    Join join = NodeJoin(host, PatientSettings(2));
    join.set_job_id(job);
    driver_.OnMessage(sessions.back(), join);
    return sessions.back();
  };
  const auto a = join("job", "node1"), b = join("job", "node2"), other = join("other", "node1");
  store_.SayTrouble("can't write: disk full");
  a->AwaitReason(told);
  b->AwaitReason(told);
  EXPECT_EQ(other->CountReason(told), 0) << "it waits for a node, not for the disk";
  join("job", "node3")->AwaitReason(told);
  join("other", "node2")->AwaitReason(told);
  other->AwaitReason(told);
  EXPECT_EQ(a->CountReason(told), 2) << "a spare's record waits, too";
  store_.SayTrouble("");
  store_.MakeOneSafe();
  a->Await<Assign>();
  b->Await<Assign>();
  EXPECT_EQ(a->CountReason(told), 2);
  for (const auto& session : sessions) driver_.OnClosed(session);
}

TEST_F(StateStoreTest, StoreError_OfOneJob_NotifiesItsLaunchersOnly) {
  const std::string told = "the rendezvous server can't keep job: too large";
  const auto a = std::make_shared<RecordingSession>(), other = std::make_shared<RecordingSession>();
  driver_.OnMessage(a, NodeJoin("node1", PatientSettings(1)));
  ASSERT_EQ(store_.unsafe(), 1);
  store_.SayJobTrouble("job", "can't keep job: too large");
  a->AwaitReason(told);
  EXPECT_EQ(driver_.StoreTrouble(), "") << "the server is fit for other jobs";
  Join join = NodeJoin("node1", PatientSettings(1));
  join.set_job_id("other");
  driver_.OnMessage(other, join);
  EXPECT_EQ(other->CountReason(told), 0);
  store_.SayJobTrouble("job", "");
  store_.MakeOneSafe();
  a->Await<Assign>();
  driver_.OnClosed(a);
  driver_.OnClosed(other);
}

// Commands to a running job of two nodes.
class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    for (const auto& [session, host] : {std::pair(a_, "node1"), std::pair(b_, "node2")}) {
      driver_.OnMessage(session, NodeJoin(host, PatientSettings(2)));
    }
    MakeAllSafe();
    driver_.OnCommand(DrainHost{"elsewhere"}, {}, [](const absl::Status&) {});
    MakeAllSafe();
  }
  ~CommandTest() override {
    driver_.OnClosed(a_);
    driver_.OnClosed(b_);
  }
  void MakeAllSafe() {
    while (store_.unsafe() > 0) store_.MakeOneSafe();
  }
  void Command(const rendezvous::Command& command) {
    driver_.OnCommand(command, {}, [this](const absl::Status& status) { answers_.push_back(status.code()); });
  }

  using Codes = std::vector<absl::StatusCode>;
  static constexpr auto kOk = absl::StatusCode::kOk;
  static constexpr auto kUnknown = absl::StatusCode::kDeadlineExceeded;
  static constexpr auto kNotDone = absl::StatusCode::kUnavailable;

  SlowStore store_;
  Driver driver_{Driver::Host::kDaemon, SavedState(), &store_};
  const std::shared_ptr<RecordingSession> a_ = std::make_shared<RecordingSession>();
  const std::shared_ptr<RecordingSession> b_ = std::make_shared<RecordingSession>();
  Codes answers_;
};

class EachCommandTest : public CommandTest, public ::testing::WithParamInterface<rendezvous::Command> {};

INSTANTIATE_TEST_SUITE_P(All, EachCommandTest,
                         ::testing::Values(StopJob{"job"}, ResizeJob{"job", 1, 2}, KickNode{"job", "node2"},
                                           DrainHost{"node2"}, UndrainHost{"elsewhere"}));
static_assert(std::variant_size_v<rendezvous::Command> == 5, "a command is missing above");

TEST_P(EachCommandTest, Command_RecordPending_IsAnsweredOncePersisted) {
  Command(GetParam());
  EXPECT_GE(store_.unsafe(), 1u);
  EXPECT_EQ(answers_, Codes{});
  MakeAllSafe();
  EXPECT_EQ(answers_, Codes{kOk});
}

TEST_P(EachCommandTest, RecordCannotBeKept_EffectIsNotKnown) {
  Command(GetParam());
  store_.SayTrouble("can't write: disk full");
  EXPECT_EQ(answers_, Codes{kUnknown});
  const size_t unsafe = store_.unsafe();
  Command(StopJob{"job"});
  EXPECT_EQ(answers_, (Codes{kUnknown, kNotDone}));
  EXPECT_EQ(store_.unsafe(), unsafe) << "nothing was done";
  store_.SayTrouble("");
  MakeAllSafe();
  EXPECT_EQ(answers_, (Codes{kUnknown, kNotDone}));
}

TEST_P(EachCommandTest, ServerShutsDown_EffectIsNotKnown) {
  Command(GetParam());
  driver_.StopCommands();
  EXPECT_EQ(answers_, Codes{kUnknown});
  Command(GetParam());
  EXPECT_EQ(answers_, (Codes{kUnknown, kNotDone}));
}

// A job's final record is small enough even if the job's last record was too large.
TEST_F(CommandTest, JobWhoseRecordIsTooLarge_CanBeStopped) {
  Command(ResizeJob{"job", 1, 2});
  store_.SayJobTrouble("job", "can't keep this job: too large");
  EXPECT_EQ(answers_, Codes{kUnknown});
  Command(StopJob{"job"});
  store_.SayJobTrouble("job", "");
  MakeAllSafe();
  EXPECT_EQ(answers_, (Codes{kUnknown, kOk}));
}

TEST_F(CommandTest, Refusal_WaitsForTheRecordThatItIsFrom) {
  Command(StopJob{"job"});
  Command(StopJob{"job"});
  Command(StopJob{"no such"});
  EXPECT_EQ(answers_, Codes{absl::StatusCode::kNotFound});
  MakeAllSafe();
  EXPECT_EQ(answers_, (Codes{absl::StatusCode::kNotFound, kOk, absl::StatusCode::kFailedPrecondition}));
}

TEST_F(CommandTest, EndWhoseRecordCannotBePersisted_ReasonSaysSo) {
  constexpr char kWhy[] = "waiting for the job's record to be written: the rendezvous server can't write: disk full";
  Command(StopJob{"job"});
  const std::string verdict = driver_.GetJob("job")->verdict().reason();
  EXPECT_EQ(driver_.GetJob("job")->reason(), verdict);
  store_.SayTrouble("can't write: disk full");
  EXPECT_EQ(driver_.GetJob("job")->reason(), kWhy);
  EXPECT_EQ(driver_.ListJobs("", 1).at(0).reason(), kWhy);
  store_.SayTrouble("");
  MakeAllSafe();
  EXPECT_EQ(driver_.GetJob("job")->reason(), verdict);
}

TEST(DriverTest, SavedJobs_AreThereBeforeAnybodyJoins) {
  JobRecord record = NewRecord("job", PatientSettings(2));
  record.set_settings_host("node1");
  record.set_highest_round(7);
  record.mutable_round()->set_number(7);
  record.mutable_round()->set_group_world_size(2);
  SlowStore store;
  Driver driver(Driver::Host::kDaemon, SavedState{{record}, 0}, &store);
  const std::optional<v1::Job> job = driver.GetJob("job");
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->state(), v1::Job::STATE_RECOVERING);
  EXPECT_EQ(job->round(), 7);
}

TEST(DriverTest, Timer_LastCallEnds_RoundBegins) {
  JobSettings settings = PatientSettings(2);
  settings.set_min_nodes(1);
  *settings.mutable_last_call() = FromDuration(absl::Milliseconds(20));
  *settings.mutable_heartbeat_timeout() =
      FromDuration(absl::Milliseconds(20));  // an incomplete job waits for nodes of an earlier server
  Driver driver;
  auto a = std::make_shared<RecordingSession>();
  Join join = NodeJoin("node1", settings);
  join.mutable_origin()->set_in_process(true);  // sends no heartbeats
  driver.OnMessage(a, join);
  EXPECT_EQ(a->Await<Assign>().assignment().group_world_size(), 1);  // only the timer can cause it
  driver.OnClosed(a);
}

TEST(DriverTest, Timer_NoHeartbeats_SessionIsEndedUnavailable) {
  JobSettings settings = PatientSettings(1);
  *settings.mutable_heartbeat_timeout() = FromDuration(absl::Milliseconds(50));
  Driver driver;
  const auto a = JoinTo(&driver, "node1", settings);
  EXPECT_EQ(a->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  driver.OnClosed(a);
}

TEST(DriverTest, OnMessage_AfterEnd_IsIgnored) {
  Driver driver;
  auto a = std::make_shared<RecordingSession>();
  driver.OnMessage(a, Heartbeat{});
  EXPECT_EQ(a->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  driver.OnMessage(a, NodeJoin("node1", PatientSettings(1)));
  EXPECT_EQ(a->count(), 0);
  EXPECT_FALSE(driver.GetJob("job").has_value());
  driver.OnClosed(a);
  driver.OnClosed(a);  // the session is unknown now
}

TEST(DriverTest, WaitUntilEveryoneLeft_CountsRemoteLaunchersOnly) {
  Driver driver;
  EXPECT_TRUE(driver.WaitUntilLaunchersLeft(SteadyNow()));
  ClientLog log;
  const auto local = NewLocalClient(&driver, log.Handler());
  log.Await<Connected>();
  local->Send(NodeJoin("node1", PatientSettings(2)));
  const auto remote = JoinTo(&driver, "node2", PatientSettings(2));
  log.Await<Assign>();
  EXPECT_FALSE(driver.WaitUntilLaunchersLeft(SteadyNow() + absl::Milliseconds(1)));
  std::thread leaver([&] { driver.OnClosed(remote); });
  EXPECT_TRUE(driver.WaitUntilLaunchersLeft(SteadyTime::InfiniteFuture()));
  leaver.join();
}

TEST(DriverTest, ManyThreads_EffectsOfEachSessionInOrder) {
  constexpr int kThreads = 4;
  Driver driver;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&driver, t] {
      JobSettings settings = PatientSettings(1, /*max_restarts=*/1000);
      auto session = std::make_shared<RecordingSession>();
      Join join = NodeJoin("node", settings);
      join.set_job_id(absl::StrCat("job", t));
      driver.OnMessage(session, join);
      for (int i = 0; i < 50; ++i) {
        const Assignment assignment = session->Await<Assign>(i).assignment();
        EXPECT_EQ(assignment.restart_count(), i);
        WorkerFailure failure = NewFailure();
        failure.set_host("node");
        failure.set_rank(0);
        failure.set_exit_code(1);
        driver.OnMessage(session, NewWorkerFailed(assignment.round(), failure));
        EXPECT_EQ(session->Await<StopRound>(i).round(), assignment.round());
        driver.OnMessage(session, NewReady(assignment.round(), 40'001 + i));
      }
      driver.OnMessage(session, NewLeave("done"));
      EXPECT_TRUE(session->AwaitEnd().ok());
      driver.OnClosed(session);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DriverTest, Leave_WithWorkers_SessionStaysUntilTheLauncherEndsIt) {
  Driver driver;
  const auto a = JoinTo(&driver, "node1", PatientSettings(1));
  a->Await<Assign>();
  driver.OnMessage(a, NewLeave("SIGTERM", true));
  EXPECT_FALSE(driver.WaitUntilLeaversLeft(SteadyNow()));
  driver.OnMessage(a, Heartbeat{});
  a->Await<HeartbeatAck>();
  std::thread leaver([&] { driver.OnClosed(a); });
  EXPECT_TRUE(driver.WaitUntilLeaversLeft(SteadyTime::InfiniteFuture()));
  EXPECT_TRUE(a->AwaitEnd().ok());
  leaver.join();
}

TEST(DriverTest, WaitUntilLeaversLeft_SilentLeaver_EndsWhenItsWorkersMustBeGone) {
  Driver driver;
  auto a = std::make_shared<RecordingSession>();
  JobSettings settings = PatientSettings(1);
  *settings.mutable_heartbeat_timeout() = FromDuration(absl::Milliseconds(50));
  driver.OnMessage(a, NodeJoin("node1", settings));
  a->Await<Assign>();
  driver.OnMessage(a, NewLeave("SIGTERM", true));
  EXPECT_FALSE(driver.WaitUntilLeaversLeft(SteadyTime::InfiniteFuture()));
  driver.OnClosed(a);
}

TEST(DriverTest, StopWaiting_EndsBothWaits) {
  Driver driver;
  const auto a = JoinTo(&driver, "node1", PatientSettings(1));
  a->Await<Assign>();
  driver.OnMessage(a, NewLeave("SIGTERM", true));
  std::thread signal([&] { driver.StopWaiting(); });
  EXPECT_FALSE(driver.WaitUntilLaunchersLeft(SteadyTime::InfiniteFuture()));
  EXPECT_FALSE(driver.WaitUntilLeaversLeft(SteadyTime::InfiniteFuture()));
  signal.join();
  driver.OnClosed(a);
}

TEST(LocalClientTest, Reset_JoinsAgain) {
  Driver driver;
  TestLauncher a([&](Client::Handler handler) { return NewLocalClient(&driver, std::move(handler)); }, "job", "node1",
                 PatientSettings(1));
  BeginRound({&a});
  a.client().Reset();
  EXPECT_FALSE(a.Await<Disconnected>().permanent);
  a.ConnectAndJoin();
  ExpectSuccess({&a});
}

TEST(LocalClientTest, Join_AsksForNoHeartbeats) {
  Driver driver;
  ClientLog log;
  const auto client = NewLocalClient(&driver, log.Handler());
  log.Await<Connected>();
  client->Send(NodeJoin("node1", PatientSettings(2)));
  const std::optional<ClientEvent> event = log.Next();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(ToDuration(std::get<Welcome>(std::get<ServerMessage>(*event)).heartbeat_interval()),
            absl::InfiniteDuration());
}

TEST(LocalClientTest, Close_ThenDestroy_LeaveIsDelivered) {
  Driver driver;
  const auto other = JoinTo(&driver, "node2", PatientSettings(2));
  {
    TestLauncher a([&](Client::Handler handler) { return NewLocalClient(&driver, std::move(handler)); }, "job", "node1",
                   PatientSettings(2));
    BeginRound({&a});
    a.client().Send(NewLeave("SIGTERM"));
    a.client().Close();
  }
  other->Await<StopRound>();
  driver.OnClosed(other);
}

TEST(DriverTest, OnMessage_RoundStopsOnThreeNodes_IsLoggedOnce) {
  InitLog("ddprun", LogLevel::kInfo);
  {
    Driver driver;
    JobSettings settings = PatientSettings(3);
    settings.set_max_restarts(1);
    std::vector<std::shared_ptr<RecordingSession>> nodes;
    for (const char* host : {"node1", "node2", "node3"}) nodes.push_back(JoinTo(&driver, host, settings));
    for (const auto& node : nodes) node->Await<Assign>();
    ::testing::internal::CaptureStderr();
    driver.OnMessage(nodes[0], NewWorkerFailed(1, NewFailure()));
    for (const auto& node : nodes) node->Await<StopRound>();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::vector<std::string>(absl::StrSplit(log, "job job: stopping round 1")).size(), 2) << log;
    for (const auto& node : nodes) driver.OnClosed(node);
  }
  InitLog("ddprun", LogLevel::kWarning);
}

}  // namespace
}  // namespace ddprun::rendezvous
