// Random event lists for the registry, with invariants checked after every event.
#include "tests/rendezvous/core/random_events.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "rendezvous/core/registry.h"
#include "rendezvous/core/validate.h"
#include "tests/rendezvous/core/invariants.h"
#include "tests/rendezvous/core/render.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kEvents = 100;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kLists = 2'000;  // six times as slow; other builds run them all
#else
constexpr uint64_t kLists = 12'000;
#endif

std::string Describe(const Join& join) {
  return absl::StrCat("joins as ", Join::Phase_Name(join.phase()), " after round ",
                      join.has_current() ? join.current().round() : 0, ", port ", join.store_port(), ", ",
                      join.survivors().size(), " survivors", join.can_reform() ? "" : ", plain",
                      join.has_node_rank() ? absl::StrCat(", requests rank ", join.node_rank()) : "");
}

struct MessageText {
  std::string operator()(const Join& m) const { return Describe(m); }
  std::string operator()(const Heartbeat&) const { return "beats"; }
  std::string operator()(const WorkerFailed& m) const {
    return absl::StrCat("failed in ", m.round(), m.failure().restartable() ? "" : " for good");
  }
  std::string operator()(const GroupSucceeded& m) const { return absl::StrCat("succeeded in ", m.round()); }
  std::string operator()(const Ready& m) const {
    return absl::StrCat("ready after ", m.left_round(), ", ", m.survivors().size(), " survivors",
                        m.can_reform() ? "" : ", plain", m.left_out() ? ", left out" : "");
  }
  std::string operator()(const Leave&) const { return "leaves"; }
  std::string operator()(const Progress&) const { return "reports progress"; }
  std::string operator()(const Inspection&) const { return "answers a question"; }
  std::string operator()(const Hang& m) const { return absl::StrCat("reports a hang in ", m.round()); }
};

std::string Describe(const RandomEvent& event, SteadyTime now) {
  const std::string at = absl::StrCat(absl::FormatDuration(now.since_start()), " ");
  if (const auto* said = std::get_if<Said>(&event)) {
    return absl::StrCat(at, said->job_id, "/", said->node_id, "#", said->incarnation, " ",
                        std::visit(MessageText{}, said->message));
  }
  if (const auto* closed = std::get_if<StreamClosed>(&event)) {
    return absl::StrCat(at, closed->job_id, "/", closed->node_id, "#", closed->incarnation, " is cut off");
  }
  return at + (std::holds_alternative<TimePasses>(event) ? "time passes" : "the server is restarted");
}

// A command of an operator.
Command RandomCommand(std::mt19937_64* random) {
  const auto below = [random](int n) { return static_cast<int32_t>((*random)() % n); };
  const std::string job_id = below(5) == 0 ? "other" : "job", host = absl::StrCat("host", below(12));
  const int32_t min_nodes = 1 + below(4);
  switch (below(8)) {
    case 0: return StopJob{job_id};
    case 1: return KickNode{job_id, host};
    case 2:
    case 3: return ResizeJob{job_id, min_nodes, min_nodes + below(3)};
    case 4: return UndrainHost{host};
    default: return DrainHost{host};
  }
}

class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : keeps_records_(seed % 3 != 0), launchers_(seed), commands_(seed) {}

  void DoCommand() {
    const Command command = RandomCommand(&commands_);
    history_.push_back(absl::StrCat(absl::FormatDuration(now_.since_start()), " command ", command.index()));
    Effects effects;
    const absl::Status status = registry_->OnCommand(command, {.name = "operator"}, now_, &effects);
    EXPECT_TRUE(status.ok() || effects.empty()) << status;
    After("", effects);
  }

  void Do() {
    const RandomEvent event = launchers_.Next();
    history_.push_back(Describe(event, now_));
    Effects effects;
    std::string job_id;
    if (const auto* said = std::get_if<Said>(&event)) {
      job_id = said->job_id;
      open_.insert({job_id, said->node_id, said->incarnation});
      LauncherMessage message = said->message;
      if (Validate(&message).ok()) {
        registry_->OnMessage(job_id, said->node_id, said->incarnation, message, now_, &effects);
      }
    } else if (const auto* closed = std::get_if<StreamClosed>(&event)) {
      job_id = closed->job_id;
      open_.erase({job_id, closed->node_id, closed->incarnation});
      registry_->OnStreamClosed(job_id, closed->node_id, closed->incarnation, now_, &effects);
    } else if (const auto* passes = std::get_if<TimePasses>(&event)) {
      const SteadyTime due = registry_->NextDeadline();
      if (!passes->to_deadline) {
        now_ = now_ + passes->by;
      } else if (due < SteadyTime::InfiniteFuture()) {
        now_ = std::max(now_, due);
      }
      registry_->OnDeadline(now_, &effects);
    } else {
      registry_ = std::make_unique<Registry>(now_, keeps_records_);
      if (keeps_records_) registry_->Restore(saved_);
      invariants_.ServerRestarted(keeps_records_);
      open_.clear();
    }
    After(job_id, effects);
  }

  // All events and their effects, for people to read.
  std::string history() const { return absl::StrJoin(history_, "\n"); }

 private:
  void After(const std::string& job_id, const Effects& effects) {
    invariants_.Check(*registry_, keeps_records_, job_id, effects, open_, now_);
    for (const Effect& effect : effects) {
      if (const auto* close = std::get_if<Close>(&effect)) {
        open_.erase({close->job_id, close->node_id, close->incarnation});
      }
      if (const auto* persist = std::get_if<Persist>(&effect)) Save(*persist->record);
    }
    launchers_.Hear(effects);
    for (const Effect& effect : effects) history_.push_back(absl::StrCat("    ", Render(effect, "job")));
  }

  void Save(const JobRecord& record) {
    std::erase_if(saved_.jobs, [&](const JobRecord& old) { return old.job_id() == record.job_id(); });
    saved_.jobs.push_back(record);
  }

  const bool keeps_records_;
  SavedState saved_;
  std::vector<std::string> history_;
  RandomLaunchers launchers_;
  std::mt19937_64 commands_;
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(100));
  std::unique_ptr<Registry> registry_ = std::make_unique<Registry>(now_, keeps_records_);
  Invariants invariants_;
  std::set<Invariants::Stream> open_;
};

// DDPRUN_RANDOM_SEED=first[:lists] runs lists of other seeds than the default ones. Every `one_command_in`-th event is
// preceded by a command; 0: no commands.
void RunLists(uint64_t lists, int one_command_in) {
  uint64_t first = 1;
  if (const char* text = std::getenv("DDPRUN_RANDOM_SEED"); text != nullptr) {
    const std::string given = text;
    const size_t colon = given.find(':');
    ASSERT_TRUE(absl::SimpleAtoi(given.substr(0, colon), &first));
    lists = 1;
    if (colon != std::string::npos) {
      ASSERT_TRUE(absl::SimpleAtoi(given.substr(colon + 1), &lists));
    }
  }
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + lists - 1));
  for (uint64_t seed = first; seed < first + lists; ++seed) {
    RandomRun run(seed);
    for (int i = 0; i < kEvents; ++i) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", event ", i));
      if (one_command_in != 0 && i % one_command_in == 0) run.DoCommand();
      run.Do();
      if (testing::Test::HasFailure()) FAIL() << run.history();
    }
  }
}

TEST(RandomEventsTest, Events_Random_HoldInvariants) { RunLists(kLists, 0); }

TEST(RandomEventsTest, Commands_InvariantsHold) { RunLists(kLists / 4, 8); }

}  // namespace
}  // namespace ddprun::rendezvous
