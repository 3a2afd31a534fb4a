#include "benchmarks/fleet/fleet.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::benchmarks {
namespace {

using namespace rendezvous;  // NOLINT: the whole file uses its messages

constexpr absl::Duration kConnectTimeout = absl::Seconds(10);

std::string TargetOf(const Endpoint& server) {
  return absl::StrCat(server.host.find(':') == std::string::npos ? "ipv4:" : "ipv6:", server.ToString());
}

WorkerFailure FailureOf(const std::string& host, int32_t rank) {
  WorkerFailure failure = NewFailure();
  failure.set_host(host);
  failure.set_rank(rank);
  failure.set_local_rank(0);
  failure.set_pid(1234);
  failure.set_exit_code(1);
  failure.set_message("exited with 1");
  return failure;
}

}  // namespace

Fleet::Fleet(const Endpoint& server)
    : target_(TargetOf(server)), host_(server.host), security_({}, server.host), thread_([this] { Run(); }) {}

Fleet::~Fleet() {
  Post([this] {
    ending_ = true;
    for (const auto& [number, launcher] : launchers_) launcher.stream->Abandon();
    if (launchers_.empty()) queue_.Shutdown();
  });
  thread_.join();
}

int64_t Fleet::Start(Join join) {
  MutexLock lock(&mutex_);
  const int64_t number = started_++;
  Post([this, number, join = std::move(join)]() mutable { Connect(number, std::move(join)); });
  return number;
}

void Fleet::Fail(int64_t launcher) {
  Post([this, launcher] {
    const auto found = launchers_.find(launcher);
    if (found == launchers_.end() || found->second.round == 0) return;
    found->second.stream->Send(NewWorkerFailed(found->second.round, FailureOf(found->second.join.host(), 0)));
  });
}

void Fleet::Succeed(const std::string& job_id) {
  Post([this, job_id] {
    for (const auto& [number, launcher] : launchers_) {
      if (launcher.join.job_id() != job_id || launcher.round == 0) continue;
      launcher.stream->Send(NewGroupSucceeded(launcher.round));
    }
  });
}

Fleet::Tally Fleet::tally() const {
  MutexLock lock(&mutex_);
  return tally_;
}

bool Fleet::Await(Tally::Kind Tally::*kind, int64_t count, SteadyTime deadline) {
  MutexLock lock(&mutex_);
  while ((tally_.*kind).count < count) {
    if (SteadyNow() >= deadline) return false;
    changed_.WaitUntil(&mutex_, deadline);
  }
  return true;
}

void Fleet::Post(std::function<void()> call) { PostTo(&queue_, std::move(call)); }

void Fleet::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (true) {
    const absl::Duration wait =
        beats_.empty() ? absl::Seconds(1) : std::max(absl::ZeroDuration(), beats_.begin()->first - SteadyNow());
    switch (queue_.AsyncNext(&tag, &ok, AfterNow(wait))) {
      case grpc::CompletionQueue::SHUTDOWN: return;
      case grpc::CompletionQueue::GOT_EVENT:
        TakeOver(static_cast<Completion*>(tag));
        static_cast<Completion*>(tag)->Run(ok);
        break;
      case grpc::CompletionQueue::TIMEOUT: break;
    }
    Beat(SteadyNow());
  }
}

void Fleet::Connect(int64_t number, Join join) {
  Launcher& launcher = launchers_[number];
  launcher.join = std::move(join);
  launcher.join.set_node_id(RandomId());
  launcher.join.set_session_secret(launcher.join.node_id());
  ClientStream::Events events;
  events.on_open = [this, number](int64_t) {
    const Launcher& opened = launchers_.at(number);
    opened.stream->Send(opened.join);
    Note(&Tally::joined);
  };
  events.on_message = [this, number](const ServerMessage& message) { OnMessage(number, message); };
  events.on_over = [this, number](StreamProgress, const absl::Status& status, const FollowerAnswer&) {
    OnOver(number, status);
  };
  launcher.stream = std::make_shared<ClientStream>(target_, host_, &security_, "", &queue_, std::move(events));
  launcher.stream->Connect(kConnectTimeout);
}

void Fleet::OnMessage(int64_t number, const ServerMessage& message) {
  Launcher& launcher = launchers_.at(number);
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    launcher.interval = ToDuration(welcome->heartbeat_interval());
    if (launcher.interval < absl::InfiniteDuration()) beats_.insert({SteadyNow() + launcher.interval, number});
    Note(&Tally::welcomed);
  } else if (const auto* assign = std::get_if<Assign>(&message)) {
    launcher.round = assign->assignment().round();
    Note(&Tally::assigned);
  } else if (const auto* stop = std::get_if<StopRound>(&message)) {
    launcher.stream->Send(NewReady(stop->round(), launcher.join.store_port(), ""));
    Note(&Tally::told);
  } else if (std::holds_alternative<Finish>(message)) {
    launcher.finished = true;
    launcher.stream->Close();
  }
}

void Fleet::OnOver(int64_t number, const absl::Status& status) {
  const bool finished = launchers_.at(number).finished;
  launchers_.erase(number);
  if (ending_) {
    if (launchers_.empty()) queue_.Shutdown();
    return;
  }
  if (!finished) {
    MutexLock lock(&mutex_);
    if (tally_.trouble.empty()) tally_.trouble = status.ToString();
  }
  Note(finished ? &Tally::finished : &Tally::lost);
}

void Fleet::Beat(SteadyTime now) {
  int64_t beats = 0;
  while (!beats_.empty() && beats_.begin()->first <= now) {
    const int64_t number = beats_.begin()->second;
    beats_.erase(beats_.begin());
    const auto found = launchers_.find(number);
    if (found == launchers_.end() || found->second.finished) continue;
    found->second.stream->Send(Heartbeat{});
    beats_.insert({now + found->second.interval, number});
    ++beats;
  }
  if (beats == 0) return;
  MutexLock lock(&mutex_);
  tally_.beats += beats;
}

void Fleet::Note(Tally::Kind Tally::*kind) {
  {
    MutexLock lock(&mutex_);
    ++(tally_.*kind).count;
    (tally_.*kind).last = SteadyNow();
  }
  changed_.NotifyAll();
}

}  // namespace ddprun::benchmarks
