// fleet: runs one job with many launchers against a running rendezvousd. Prints "NAME VALUE" lines; benchmarks/fleet.py
// turns them into a table.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "base/text.h"
#include "benchmarks/fleet/fleet.h"

namespace ddprun::benchmarks {
namespace {

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
  rendezvous::Join job_ = rendezvous::NewJoin();
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
