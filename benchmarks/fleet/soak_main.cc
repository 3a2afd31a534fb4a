// soak: runs jobs of two launchers each against a running rendezvousd, many at a time. Every second job restarts once.
// Prints a line "jobs COUNT" after each wave; benchmarks/soak.py then samples the server.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/endpoint.h"
#include "base/file_limit.h"
#include "base/random_id.h"
#include "benchmarks/fleet/fleet.h"

namespace ddprun::benchmarks {
namespace {

constexpr int kNodes = 2;

struct Options {
  std::string server;
  int jobs = 10'000;
  int at_once = 50;
  double limit = 60;  // for one wave
};

class Soak {
 public:
  Soak(const Options& options, const Endpoint& server) : options_(options), fleet_(server) {}

  bool Run() {
    while (jobs_ < options_.jobs) {
      if (!Wave()) return false;
      absl::PrintF("jobs %d\n", jobs_);
      fflush(stdout);
    }
    return fleet_.tally().lost.count == 0;
  }

 private:
  bool Wave() {
    deadline_ = SteadyNow() + absl::Seconds(options_.limit);
    std::vector<std::string> ids;
    std::vector<int64_t> firsts;
    for (int i = 0; i < options_.at_once; ++i) {
      rendezvous::Join join = rendezvous::NewJoin();
      join.set_job_id(RandomId());
      join.set_address("127.0.0.1");
      join.set_store_port(29500);
      join.mutable_settings()->set_max_nodes(kNodes);
      join.mutable_settings()->set_min_nodes(kNodes);
      join.mutable_settings()->set_max_restarts(1);
      *join.mutable_heartbeat_timeout() = join.settings().heartbeat_timeout();
      ids.push_back(join.job_id());
      for (int node = 0; node < kNodes; ++node) {
        join.set_host(absl::StrFormat("node%d", node));
        const int64_t launcher = fleet_.Start(join);
        if (node == 0) firsts.push_back(launcher);
      }
    }
    assigned_ += kNodes * options_.at_once;
    if (!Await(&Fleet::Tally::assigned, assigned_)) return false;
    for (int i = 0; i < options_.at_once; i += 2) {
      fleet_.Fail(firsts[i]);
      assigned_ += kNodes;
    }
    if (!Await(&Fleet::Tally::assigned, assigned_)) return false;
    for (const std::string& id : ids) fleet_.Succeed(id);
    jobs_ += options_.at_once;
    return Await(&Fleet::Tally::finished, int64_t{kNodes} * jobs_);
  }

  bool Await(Fleet::Tally::Kind Fleet::Tally::*kind, int64_t count) {
    if (fleet_.Await(kind, count, deadline_)) return true;
    const Fleet::Tally tally = fleet_.tally();
    absl::FPrintF(stderr, "soak: after %.0f s %d of %d; %d lost%s%s\n", options_.limit, (tally.*kind).count, count,
                  tally.lost.count, tally.trouble.empty() ? "" : ": ", tally.trouble);
    return false;
  }

  const Options options_;
  SteadyTime deadline_;
  int jobs_ = 0;
  int64_t assigned_ = 0;
  Fleet fleet_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Runs job after job, each with two launchers without workers, on one rendezvousd.", "soak");
  app.add_option("--server", options.server, "ADDRESS:PORT of the rendezvousd")->required();
  app.add_option("--jobs", options.jobs, "Total number of jobs")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--at-once", options.at_once, "Jobs that run at the same time")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--limit", options.limit, "Give up if a wave takes longer than this many seconds")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<Endpoint> server = ParseEndpoint(options.server);
  if (!server.ok()) {
    absl::FPrintF(stderr, "soak: --server: %s\n", server.status().message());
    return 2;
  }
  RaiseFileLimit();
  return Soak(options, *server).Run() ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::benchmarks

int main(int argc, char** argv) { return ddprun::benchmarks::Main(argc, argv); }
