// Cost of the joins of a job and of assigning its ranks in the pure core: time per job, which must grow linearly with
// the number of nodes.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "rendezvous/core/registry.h"

namespace ddprun::rendezvous {
namespace {

std::vector<Join> Launchers(int nodes) {
  std::vector<Join> joins(nodes, NewJoin());
  for (int i = 0; i < nodes; ++i) {
    joins[i].set_job_id("job");
    joins[i].set_node_id(absl::StrCat("0123456789abcdef", i * 7919LL % nodes));
    joins[i].set_address(absl::StrCat("node", i * 7919LL % nodes, ".cluster"));
    joins[i].set_host(absl::StrCat("node", i * 7919LL % nodes, ".cluster"));
    joins[i].set_store_port(29500);
    joins[i].set_slots(8);
    joins[i].mutable_settings()->set_max_nodes(nodes);
    joins[i].mutable_settings()->set_min_nodes(nodes);
    joins[i].mutable_settings()->set_max_restarts(1);
  }
  return joins;
}

// `sessions`: launchers prove with their Join that they are the same as before (protocol 2.4). `records`: what has to
// outlive the server is handed out as well (4.4).
void BM_JoinAndAssign(benchmark::State& state) {
  std::vector<Join> joins = Launchers(static_cast<int>(state.range(0)));
  if (state.range(1) != 0) {
    for (Join& join : joins) join.set_session_secret(absl::StrCat(join.node_id(), join.host(), "0123456789abcdef"));
  }
  const bool records = state.range(2) != 0;
  const SteadyTime now = SteadyTime::FromStart(absl::Seconds(1));
  for (auto _ : state) {
    Registry registry(SteadyTime::InfinitePast(), records);
    Effects effects;
    effects.reserve(3 * joins.size() + 3);
    for (const Join& join : joins) registry.OnMessage("job", join.node_id(), 1, join, now, &effects);
    // With what is reported of each Join, of the job and of the round.
    const size_t expected = 3 * joins.size() + 2 + (records ? 1 : 0);
    if (effects.size() != expected) state.SkipWithError("not everybody was given ranks");
    benchmark::DoNotOptimize(effects);
  }
  state.counters["time_per_node"] = benchmark::Counter(
      static_cast<double>(joins.size()), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_JoinAndAssign)
    ->ArgNames({"nodes", "sessions", "records"})
    ->ArgsProduct({{1'000, 10'000, 100'000}, {0, 1}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// A worker's failure, everybody's Ready and the next round. `drained`: a host is that has no node of the job.
void BM_Restart(benchmark::State& state) {
  const std::vector<Join> joins = Launchers(static_cast<int>(state.range(0)));
  const SteadyTime now = SteadyTime::FromStart(absl::Seconds(1));
  for (auto _ : state) {
    state.PauseTiming();
    Registry registry(SteadyTime::InfinitePast());
    Effects effects;
    if (state.range(1) != 0) (void)registry.OnCommand(DrainHost{"elsewhere"}, {}, now, &effects);
    for (const Join& join : joins) registry.OnMessage("job", join.node_id(), 1, join, now, &effects);
    effects.clear();
    state.ResumeTiming();
    registry.OnMessage("job", joins[0].node_id(), 1, NewWorkerFailed(1, NewFailure()), now, &effects);
    for (const Join& join : joins) registry.OnMessage("job", join.node_id(), 1, NewReady(1, 29501), now, &effects);
    // With what is reported: the failure, that the round was stopped, and the next one.
    if (effects.size() != 2 * joins.size() + 3) state.SkipWithError("not everybody was given ranks");
  }
  state.SetComplexityN(state.range(0));
}
BENCHMARK(BM_Restart)
    ->ArgNames({"nodes", "drained"})
    ->ArgsProduct({{1'000, 10'000, 100'000}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

void BM_Heartbeat(benchmark::State& state) {
  const std::vector<Join> joins = Launchers(static_cast<int>(state.range(0)));
  SteadyTime now = SteadyTime::FromStart(absl::Seconds(1));
  Registry registry(SteadyTime::InfinitePast());
  Effects effects;
  for (const Join& join : joins) registry.OnMessage("job", join.node_id(), 1, join, now, &effects);
  size_t next = 0;
  for (auto _ : state) {
    effects.clear();
    now = now + absl::Nanoseconds(1);
    registry.OnMessage("job", joins[next].node_id(), 1, Heartbeat{}, now, &effects);
    benchmark::DoNotOptimize(registry.NextDeadline());
    next = next + 1 == joins.size() ? 0 : next + 1;
  }
}
BENCHMARK(BM_Heartbeat)->Arg(1'000)->Arg(10'000)->Arg(100'000);

}  // namespace
}  // namespace ddprun::rendezvous

BENCHMARK_MAIN();
