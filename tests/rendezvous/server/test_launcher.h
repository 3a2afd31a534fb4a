#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_TEST_LAUNCHER_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_TEST_LAUNCHER_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "rendezvous/client/client.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

using ::testing::HasSubstr;
using ::testing::Not;

// Long enough that only a hang exceeds it.
inline constexpr absl::Duration kHang = absl::Seconds(60);

// Name of the event, with its reason if it has one.
inline std::string Describe(const ClientEvent& event) {
  if (const auto* gone = std::get_if<Disconnected>(&event)) {
    return absl::StrCat("Disconnected(", gone->permanent ? "for good: " : "", gone->reason, ")");
  }
  if (std::holds_alternative<Connected>(event)) return "Connected";
  const ServerMessage& message = std::get<ServerMessage>(event);
  if (const auto* rejected = std::get_if<Rejected>(&message)) return absl::StrCat("Rejected(", rejected->reason(), ")");
  if (const auto* finish = std::get_if<Finish>(&message))
    return absl::StrCat("Finish(", finish->verdict().reason(), ")");
  if (const auto* stop = std::get_if<StopRound>(&message)) return absl::StrCat("StopRound(", stop->reason(), ")");
  if (const auto* without = std::get_if<ExcludedFromRound>(&message))
    return "ExcludedFromRound(" + without->reason() + ")";
  static constexpr const char* kNames[] = {"Welcome", "HeartbeatAck", "Waiting", "Assign"};
  return kNames[message.index()];
}

// Queues the events of a client until a test awaits them.
class ClientLog {
 public:
  Client::Handler Handler() {
    return [this](ClientEvent event) {
      {
        MutexLock lock(&mutex_);
        events_.push_back(std::move(event));
      }
      changed_.NotifyAll();
    };
  }

  // Returns the next event. Fails the test and returns nullopt if there is none within kHang.
  std::optional<ClientEvent> Next() {
    const SteadyTime deadline = SteadyNow() + kHang;
    MutexLock lock(&mutex_);
    while (events_.empty()) {
      if (SteadyNow() >= deadline) {
        ADD_FAILURE() << "no event";
        return std::nullopt;
      }
      changed_.WaitUntil(&mutex_, deadline);
    }
    ClientEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  // Skips notices (Welcome, HeartbeatAck, Waiting) and returns the next T. Fails the test at any other event.
  template <typename T>
  T Await() {
    while (std::optional<ClientEvent> event = Next()) {
      if constexpr (std::is_same_v<T, Connected> || std::is_same_v<T, Disconnected>) {
        if (auto* wanted = std::get_if<T>(&*event)) return std::move(*wanted);
      } else if (auto* message = std::get_if<ServerMessage>(&*event)) {
        if (auto* wanted = std::get_if<T>(message)) return std::move(*wanted);
      }
      if (IsNotice(*event)) continue;
      ADD_FAILURE() << "unexpected " << Describe(*event);
      break;
    }
    return T{};
  }

  // Skips all events until Connected.
  void AwaitReconnected() {
    while (std::optional<ClientEvent> event = Next()) {
      if (std::holds_alternative<Connected>(*event)) return;
    }
  }

  bool empty() {
    MutexLock lock(&mutex_);
    return events_.empty();
  }

 private:
  static bool IsNotice(const ClientEvent& event) {
    const auto* message = std::get_if<ServerMessage>(&event);
    return message != nullptr &&
           (std::holds_alternative<Welcome>(*message) || std::holds_alternative<HeartbeatAck>(*message) ||
            std::holds_alternative<Waiting>(*message));
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<ClientEvent> events_ ABSL_GUARDED_BY(mutex_);
};

// Settings under which no timeout expires within a test, even on a slow machine.
inline JobSettings PatientSettings(int nodes, int max_restarts = 3) {
  JobSettings settings = DefaultSettings();
  settings.set_min_nodes(nodes);
  settings.set_max_nodes(nodes);
  settings.set_max_restarts(max_restarts);
  *settings.mutable_join_timeout() = FromDuration(absl::Hours(1));
  *settings.mutable_last_call() = FromDuration(absl::Hours(1));
  *settings.mutable_heartbeat_timeout() = FromDuration(absl::Hours(1));
  *settings.mutable_reconnect_grace() = FromDuration(absl::Hours(1));
  return settings;
}

// A launcher without workers: the test reports their events. Each step is explicit, so a test reads as the exchange of
// messages.
class TestLauncher {
 public:
  using NewClient = std::function<std::unique_ptr<Client>(Client::Handler)>;

  TestLauncher(const NewClient& new_client, const std::string& job, const std::string& host, JobSettings settings) {
    join_.set_job_id(job);
    join_.set_node_id(absl::StrCat(job, "/", host));
    join_.set_host(host);
    join_.set_address(absl::StrCat(host, ".example"));
    join_.set_store_port(40'000);
    join_.set_slots(2);
    *join_.mutable_settings() = settings;
    join_.set_session_secret(std::string(32, 's'));
    join_.set_incarnation(0);
    client_ = new_client(log_.Handler());
  }

  ClientLog& log() { return log_; }
  Client& client() { return *client_; }
  Join& join() { return join_; }
  template <typename T>
  T Await() {
    return log_.Await<T>();
  }

  void ConnectAndJoin() {
    log_.Await<Connected>();
    SendJoin();
  }

  void SendJoin() {
    join_.set_incarnation(join_.incarnation() + 1);
    client_->Send(join_);
  }

  // Waits for an Assign, and takes part in that round with running workers.
  Assignment AwaitRound() {
    const Assignment assignment = log_.Await<Assign>().assignment();
    join_.set_phase(Join::PHASE_RUNNING);
    *join_.mutable_current() = assignment;
    return assignment;
  }

  void FailWorker(int exit_code) {
    WorkerFailure failure = NewFailure();
    failure.set_host(join_.host());
    failure.set_rank(join_.current().base_rank());
    failure.set_local_rank(0);
    failure.set_pid(1234);
    failure.set_exit_code(exit_code);
    failure.set_message(absl::StrCat("exited with ", exit_code));
    client_->Send(NewWorkerFailed(join_.current().round(), failure));
  }

  // Answers a StopRound: the workers are gone.
  void GetReady() {
    const StopRound stop = log_.Await<StopRound>();
    join_.set_phase(Join::PHASE_IDLE);
    join_.set_store_port(join_.store_port() + 1);
    client_->Send(NewReady(stop.round(), join_.store_port()));
  }

  void Succeed() {
    join_.set_phase(Join::PHASE_SUCCEEDED);
    client_->Send(NewGroupSucceeded(join_.current().round()));
  }

  void Disappear() { client_.reset(); }

 private:
  ClientLog log_;
  Join join_ = NewJoin();
  std::unique_ptr<Client> client_;  // last: its handler uses the log
};

// All of them join a job, whose round they then take part in. Returns the last one's place.
inline Assignment BeginRound(std::initializer_list<TestLauncher*> launchers) {
  for (TestLauncher* launcher : launchers) launcher->ConnectAndJoin();
  Assignment assignment;
  for (TestLauncher* launcher : launchers) assignment = launcher->AwaitRound();
  return assignment;
}

// All workers succeed, and the launchers receive the job's success.
inline void ExpectSuccess(std::initializer_list<TestLauncher*> launchers) {
  for (TestLauncher* launcher : launchers) launcher->Succeed();
  for (TestLauncher* launcher : launchers) EXPECT_TRUE(launcher->Await<Finish>().verdict().succeeded());
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_TEST_LAUNCHER_H_
