// Measures the cost of one client's arrival and its Gloo key in the store's watch, in worlds of different sizes: the
// time per client must not grow with the world.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "launcher/store/join_watch.h"

namespace ddprun::launcher {
namespace {

constexpr int kSlots = 8;

void BM_ClientJoins(benchmark::State& state) {
  const int world = static_cast<int>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    JoinWatch watch;
    watch.BeginRound(1, world);
    for (int base = 0; base < world; base += kSlots) {
      NodeRegistration node = {1, base, "host", {}};
      for (int i = 0; i < kSlots && base + i < world; ++i) node.pids.push_back(static_cast<uint32_t>(1000 + i));
      if (!watch.Register(node, absl::StrCat("node", base / kSlots)).ok()) return state.SkipWithError("refused");
    }
    std::vector<JoinWatch::Client> clients;
    std::vector<std::string> keys;
    for (int rank = 0; rank < world; ++rank) {
      clients.push_back({absl::StrCat("node", rank / kSlots), {static_cast<uint32_t>(1000 + rank % kSlots)}});
      keys.push_back(absl::StrCat("/default_pg/0//cpu//0/", rank));
    }
    state.ResumeTiming();
    for (int rank = 0; rank < world; ++rank) {
      watch.OnClient(clients[rank]);
      benchmark::DoNotOptimize(watch.Joined());
      watch.OnSet(clients[rank], keys[rank]);
      benchmark::DoNotOptimize(watch.Joined());
    }
    if (watch.Joined() != world) state.SkipWithError("not all have joined");
  }
  state.counters["time_per_rank"] = benchmark::Counter(
      static_cast<double>(world), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_ClientJoins)->Arg(4)->Arg(1024)->Arg(16384)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ddprun::launcher

BENCHMARK_MAIN();
