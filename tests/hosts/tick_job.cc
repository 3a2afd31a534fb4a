#include "tests/hosts/tick_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

constexpr int kPort = 29400;

}  // namespace

TickJob::TickJob(const Hosts* hosts, const Settings& settings) {
  const std::string conf = absl::StrCat("--rdzv-conf=last_call_timeout=0.5,join_timeout=100,heartbeat_timeout=",
                                        absl::ToDoubleSeconds(settings.heartbeat_timeout));
  for (size_t i = 0; i < settings.nodes.size(); ++i) {
    const Node& node = settings.nodes[i];
    std::vector<std::string> argv = {"launcher/ddprun",
                                     "--shutdown-timeout=2",
                                     "--nnodes",
                                     settings.nnodes,
                                     absl::StrCat("--nproc-per-node=", node.workers),
                                     absl::StrCat("--rdzv-endpoint=", Hosts::Name(settings.first_host), ":", kPort),
                                     absl::StrCat("--rdzv-id=job", settings.first_host),
                                     conf,
                                     "--no-python",
                                     node.program,
                                     dir_.File("ticks"),
                                     dir_.File("gate")};
    if (settings.stubborn) argv.push_back("stubborn");
    launchers_.push_back(std::make_unique<Process>(hosts->On(settings.first_host + static_cast<int>(i), argv)));
    world_ += node.workers;
  }
}

std::vector<Tick> TickJob::Ticks() const {
  std::vector<Tick> ticks;
  std::istringstream text(ReadFile(dir_.File("ticks")));
  Tick tick;
  int64_t nanos = 0;
  while (text >> tick.round >> tick.world >> tick.pid >> nanos) {
    tick.at = SteadyTime::FromStart(absl::Nanoseconds(nanos));
    ticks.push_back(tick);
  }
  return ticks;
}

bool TickJob::IsWhole(SteadyTime after) const {
  std::map<int, std::set<int>> pids;
  for (const Tick& tick : Ticks()) {
    if (tick.at > after && tick.world == world_) pids[tick.round].insert(tick.pid);
  }
  return !pids.empty() && static_cast<int>(pids.rbegin()->second.size()) == world_;
}

void TickJob::EndWell() {
  fclose(fopen(dir_.File("gate").c_str(), "w"));
  for (const auto& launcher : launchers_) EXPECT_EQ(launcher->Wait(), 0) << launcher->Err();
}

void TickJob::ExpectOneWorldAtATime() const {
  std::map<int, std::pair<SteadyTime, SteadyTime>> spans;  // key: round
  for (const Tick& tick : Ticks()) {
    auto [it, is_new] = spans.try_emplace(tick.round, tick.at, tick.at);
    it->second.first = std::min(it->second.first, tick.at);
    it->second.second = std::max(it->second.second, tick.at);
  }
  const std::pair<SteadyTime, SteadyTime>* before = nullptr;
  for (const auto& [round, span] : spans) {
    if (before != nullptr) {
      EXPECT_LT(before->second, span.first)
          << "round " << round << " began " << absl::FormatDuration(before->second - span.first)
          << " before the one before it was over\n"
          << Said();
    }
    before = &span;
  }
}

int TickJob::rounds() const {
  std::set<int> rounds;
  for (const Tick& tick : Ticks()) rounds.insert(tick.round);
  return static_cast<int>(rounds.size());
}

std::string TickJob::Said() const {
  std::string text;
  for (const auto& launcher : launchers_) absl::StrAppend(&text, launcher->Err(), "\n");
  return text;
}

void PassUntil(SteadyTime time) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(absl::ToInt64Nanoseconds(time - SteadyNow())));
}

}  // namespace ddprun::testing
