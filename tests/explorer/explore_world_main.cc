// explore_world [NAME=VALUE ...]: explores one world (world.h, Settings) and prints the number of its states, or the
// way to a violation: explore_world nodes=3 max_nodes=3 cuts=1. `compare=1` compares states of equal digest.
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/explorer/explore.h"

int main(int argc, char** argv) {
  using ddprun::testing::Exploration;
  ddprun::testing::World::Settings world;
  int records = 1, compare = 0, most = 20'000'000;
  const std::map<std::string, int*> names = {{"nodes", &world.nodes},
                                             {"late", &world.late},
                                             {"min_nodes", &world.min_nodes},
                                             {"max_nodes", &world.max_nodes},
                                             {"records", &records},
                                             {"reform", &world.reform},
                                             {"max_restarts", &world.max_restarts},
                                             {"failures", &world.failures},
                                             {"cuts", &world.cuts},
                                             {"crashes", &world.crashes},
                                             {"deaths", &world.deaths},
                                             {"leaves", &world.leaves},
                                             {"repeats", &world.repeats},
                                             {"spared", &world.spared},
                                             {"compare", &compare},
                                             {"most", &most}};
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto name = names.find(pair.first);
    if (name == names.end() || !absl::SimpleAtoi(pair.second, name->second)) {
      std::fprintf(stderr, "not understood: %s\n", argv[i]);
      return 2;
    }
  }
  world.keeps_records = records != 0;
  const auto began = std::chrono::steady_clock::now();
  const Exploration e = Explore(world, most, compare != 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!e.violation.empty()) std::printf("%s\n", e.history.c_str());
  if (!e.unequal.empty()) std::printf("%s\nthese states have one digest, but not one future\n", e.unequal.c_str());
  std::printf("%zu states, %zu transitions, %zu ends, depth %zu, %.1f s%s\n", e.states, e.transitions, e.ends, e.depth,
              took.count(), e.states >= static_cast<size_t>(most) ? ": not all" : "");
  return e.violation.empty() && e.unequal.empty() ? 0 : 1;
}
