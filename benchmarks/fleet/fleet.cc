// fleet: runs one job with many launchers against a running rendezvousd. Prints "NAME VALUE" lines; benchmarks/fleet.py
// turns them into a table. Fleet is the launchers, Measurement what is done with them.
#include <grpcpp/completion_queue.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "rendezvous/client/client_stream.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::benchmarks {
namespace {

using namespace rendezvous;  // NOLINT: the whole file uses its messages

// Simulates thousands of launchers in one process, each with its own connection and Session stream. They have no
// workers and no stores: a launcher joins, sends heartbeats at the interval the server requests, accepts assignments,
// answers StopRound with Ready at once, and closes its stream after Finish. A stream that ends otherwise counts as lost
// and is not reopened. One thread runs all launchers. Thread-safe.
class Fleet {
 public:
  // Event counts of all launchers together, with the time of the newest event of each kind.
  struct Tally {
    struct Kind {
      int64_t count = 0;
      SteadyTime last = SteadyTime::InfinitePast();
    };
    Kind joined;    // the Join was sent
    Kind welcomed;  // the Join was accepted
    Kind assigned;
    Kind told;      // StopRound was received
    Kind finished;  // the stream has ended after a Finish
    Kind lost;
    int64_t beats = 0;
    std::string trouble;  // the error of the first launcher lost
  };

  explicit Fleet(const Endpoint& server);
  // Cancels the remaining streams.
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Starts connecting a launcher and returns its number. Settings and names come from `join`; node id and incarnation
  // are chosen here.
  int64_t Start(Join join);

  // Simulates that a worker of this launcher fails, or that all workers of a job succeed. Ignored without an
  // assignment.
  void Fail(int64_t launcher);
  void Succeed(const std::string& job_id);

  Tally tally() const;
  // Waits until `count` events of a kind were counted; returns false at `deadline`.
  bool Await(Tally::Kind Tally::*kind, int64_t count, SteadyTime deadline);

 private:
  struct Launcher {
    std::shared_ptr<ClientStream> stream;
    Join join = NewJoin();
    uint64_t round = 0;  // 0: none yet
    absl::Duration interval = absl::InfiniteDuration();
    bool finished = false;
  };
  using Launchers = std::map<int64_t, Launcher>;

  void Run();
  void Post(std::function<void()> call);
  // All methods below run on the queue's thread.
  void Connect(int64_t number, Join join);
  void OnMessage(int64_t number, const ServerMessage& message);
  void OnOver(int64_t number, const absl::Status& status);
  void Beat(SteadyTime now);
  void Note(Tally::Kind Tally::*kind);

  const std::string target_;
  const std::string host_;
  ClientSecurity security_;
  grpc::CompletionQueue queue_;
  Launchers launchers_;
  std::multimap<SteadyTime, int64_t> beats_;
  bool ending_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  Tally tally_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last: it uses all other members
};

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

// Maximum number of launchers waiting for their Welcome: connecting all at once would measure connection queueing.
constexpr int64_t kConnecting = 256;

struct Options {
  std::string server;
  int nodes = 100;
  int pid = 0;
  double hold = 10;
  double limit = 120;
};

// Resource usage of another process on this host.
struct Usage {
  double cpu_seconds = 0;
  int64_t resident_kb = 0;
  int64_t threads = 0;
};

Usage UsageOf(int pid) {
  Usage usage;
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return usage;
  std::istringstream fields(text.substr(name_end + 2));
  std::string field;
  for (int i = 3; fields >> field; ++i) {  // proc(5) counts from 1; the name is field 2
    if (i == 14 || i == 15) usage.cpu_seconds += std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
    if (i == 20) usage.threads = std::stoll(field);
    if (i == 24) usage.resident_kb = std::stoll(field) * sysconf(_SC_PAGESIZE) / 1024;
  }
  return usage;
}

void Print(const std::string& name, double value) {
  absl::PrintF("%s %.3f\n", name, value);
  fflush(stdout);
}

double Milliseconds(SteadyTime from, SteadyTime to) { return absl::ToDoubleMilliseconds(to - from); }

class Measurement {
 public:
  Measurement(const Options& options, const Endpoint& server)
      : options_(options), deadline_(SteadyNow() + absl::Seconds(options.limit)), fleet_(server) {
    job_.set_job_id(RandomId());
    job_.set_address("127.0.0.1");
    job_.set_store_port(29500);
    job_.mutable_settings()->set_max_nodes(options.nodes);
    job_.mutable_settings()->set_min_nodes(options.nodes);
    job_.mutable_settings()->set_max_restarts(3);
    *job_.mutable_heartbeat_timeout() = job_.settings().heartbeat_timeout();  // uses the timeout of the Welcome
  }

  bool Run() {
    const Usage empty = UsageOf(options_.pid);
    const SteadyTime begin = SteadyNow();
    // All but one, then the last one, so that its join can be timed.
    for (int i = 0; i + 1 < options_.nodes; ++i) {
      if (!Await(&Fleet::Tally::welcomed, i - kConnecting)) return false;
      StartLauncher(i);
    }
    if (!Await(&Fleet::Tally::welcomed, options_.nodes - 1)) return false;
    Print("all_but_one_joined_ms", Milliseconds(begin, SteadyNow()));
    StartLauncher(options_.nodes - 1);
    if (!Await(&Fleet::Tally::assigned, options_.nodes)) return false;
    Fleet::Tally tally = fleet_.tally();
    Print("last_join_to_all_assigned_ms", Milliseconds(tally.joined.last, tally.assigned.last));
    Hold(empty);
    return FailOne() && Finish();
  }

 private:
  void StartLauncher(int i) {
    job_.set_host(absl::StrFormat("node%05d", i));
    fleet_.Start(job_);
  }

  bool Await(Fleet::Tally::Kind Fleet::Tally::*kind, int64_t count) {
    if (fleet_.Await(kind, count, deadline_)) return true;
    const Fleet::Tally tally = fleet_.tally();
    absl::FPrintF(stderr, "fleet: after %.0f s %d of %d; %d joined, %d lost%s%s\n", options_.limit, (tally.*kind).count,
                  count, tally.joined.count, tally.lost.count, tally.trouble.empty() ? "" : ": ", tally.trouble);
    return false;
  }

  // Measures the running job while only heartbeats are sent.
  void Hold(const Usage& empty) {
    absl::SleepFor(absl::Seconds(std::min(options_.hold, 2.0)));  // let the launch settle
    const Usage before = UsageOf(options_.pid);
    const int64_t beats = fleet_.tally().beats;
    absl::SleepFor(absl::Seconds(options_.hold));
    const Usage after = UsageOf(options_.pid);
    Print("steady_cpu_percent", 100 * (after.cpu_seconds - before.cpu_seconds) / options_.hold);
    Print("beats_per_second", static_cast<double>(fleet_.tally().beats - beats) / options_.hold);
    Print("kb_per_launcher", static_cast<double>(after.resident_kb - empty.resident_kb) / options_.nodes);
    Print("server_mb", static_cast<double>(after.resident_kb) / 1024);
    Print("server_threads", static_cast<double>(after.threads));
  }

  bool FailOne() {
    const SteadyTime failed = SteadyNow();
    fleet_.Fail(options_.nodes / 2);
    if (!Await(&Fleet::Tally::told, options_.nodes) || !Await(&Fleet::Tally::assigned, 2 * options_.nodes))
      return false;
    const Fleet::Tally tally = fleet_.tally();
    Print("failure_to_all_told_ms", Milliseconds(failed, tally.told.last));
    Print("failure_to_all_assigned_ms", Milliseconds(failed, tally.assigned.last));
    return true;
  }

  bool Finish() {
    const SteadyTime begin = SteadyNow();
    fleet_.Succeed(job_.job_id());
    if (!Await(&Fleet::Tally::finished, options_.nodes)) return false;
    const Fleet::Tally tally = fleet_.tally();
    Print("end_to_all_finished_ms", Milliseconds(begin, tally.finished.last));
    Print("lost", static_cast<double>(tally.lost.count));
    return tally.lost.count == 0;
  }

  const Options options_;
  const SteadyTime deadline_;
  Join job_ = NewJoin();
  Fleet fleet_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Many launchers without workers, each with a real stream, as one job on one rendezvousd.", "fleet");
  app.add_option("--server", options.server, "ADDRESS:PORT of the rendezvousd")->required();
  app.add_option("--nodes", options.nodes, "Launchers")->check(CLI::Range(2, 100000))->capture_default_str();
  app.add_option("--pid", options.pid, "Process ID of rendezvousd, whose CPU and memory are measured")->required();
  app.add_option("--hold", options.hold, "Seconds of heartbeats alone")->capture_default_str();
  app.add_option("--limit", options.limit, "Give up after this many seconds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<Endpoint> server = ParseEndpoint(options.server);
  if (!server.ok()) {
    absl::FPrintF(stderr, "fleet: --server: %s\n", server.status().message());
    return 2;
  }
  RaiseFileLimit();
  return Measurement(options, *server).Run() ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::benchmarks

int main(int argc, char** argv) { return ddprun::benchmarks::Main(argc, argv); }
