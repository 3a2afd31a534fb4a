#ifndef DDPRUN_TESTS_E2E_LOGGED_JOB_H_
#define DDPRUN_TESTS_E2E_LOGGED_JOB_H_

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {

// A job of two launchers with a worker each and two restarts, for tests in which servers die. Its workers write a
// line to a file for each event, so that Check sees in the history whether a server has lost or repeated a round.
class LoggedJob {
 public:
  static constexpr int kNodes = 2;

  // The workers run `script` in a shell with: $RANK; $ATTEMPT, the restart count; `Say WHAT`, which logs an event;
  // `Sleep SECONDS`, which SIGTERM ends; `Await SUFFIX`, which waits for Tell(SUFFIX). A script logs "fail" before it
  // fails, and "stop" before it ends.
  LoggedJob(const std::string& name, const std::string& endpoints, const TempDir& dir, const std::string& script)
      : out_(dir.File(name)), go_(dir.File(name + ".go")) {
    const std::string whole =
        absl::StrCat("ATTEMPT=$TORCHELASTIC_RESTART_COUNT; Say() { echo $1 $RANK $DDPRUN_ROUND $ATTEMPT >>", out_,
                     "; }; Sleep() { sleep $1 & wait $!; }; Await() { while [ ! -e ", go_,
                     "$1 ]; do sleep 0.05; done; }; trap 'Say stop; exit 143' TERM; Say start; ", script);
    for (int node = 0; node < kNodes; ++node) {
      launchers_.push_back(std::make_unique<Launcher>(std::vector<std::string>{
          absl::StrCat("--nnodes=", kNodes), "--nproc-per-node=1", "--rdzv-endpoint=" + endpoints, "--rdzv-id=" + name,
          "--max-restarts=2", "--rdzv-conf=is_host=0", "--no-python", "sh", "-c", whole}));
    }
  }

  void Tell(const std::string& suffix = "") const { Touch(go_ + suffix); }
  int Said(const std::string& what) const { return Count(ReadFile(out_), what); }
  bool AwaitSaid(const std::string& what, int count) const {
    return Eventually([&] { return Said(what) >= count; });
  }

  // Number of times that the launchers have lost the server.
  int Losses() const {
    int losses = 0;
    for (const auto& launcher : launchers_) losses += LossesOf(*launcher);
    return losses;
  }
  // Number of running launchers that have reached a server `times` times, or after each loss.
  int Connected(int times = 0) const {
    if (Said("start") == 0) return 0;  // no loss may mean that no connection existed yet
    return std::count_if(launchers_.begin(), launchers_.end(), [&](const auto& launcher) {
      return Alive(launcher->pid()) &&
             Count(launcher->Err(), "reached the rendezvous server") >= std::max(times, LossesOf(*launcher));
    });
  }
  bool AwaitConnected(int times) const {
    return Eventually([&] { return Connected(times) == kNodes; });
  }
  bool Ended() const {
    return std::none_of(launchers_.begin(), launchers_.end(), [](const auto& l) { return Alive(l->pid()); });
  }
  std::string Logs() const {
    return absl::StrCat(launchers_[0]->Err(), "\n--\n", launchers_[1]->Err(), "\n--\n", ReadFile(out_));
  }

  // Waits for the end of the job. Every launcher exits with `exit_code`; each round starts once, after all workers of
  // the previous ones have ended; each failure costs one restart.
  void Check(int exit_code) {
    for (const auto& launcher : launchers_) EXPECT_EQ(launcher->Wait(), exit_code);
    SCOPED_TRACE(Logs());
    std::map<int, std::set<int>> running;   // ranks; key: round
    std::set<std::pair<int, int>> started;  // round, rank
    std::map<int, int> attempts;            // key: round
    std::set<int> failed;                   // rounds
    std::istringstream lines(ReadFile(out_));
    std::string what;
    int rank = 0, round = 0, attempt = 0;
    while (lines >> what >> rank >> round >> attempt) {
      if (what == "stop") running[round].erase(rank);
      if (what == "fail") failed.insert(round);
      if (what != "start") continue;
      EXPECT_TRUE(started.insert({round, rank}).second) << "round " << round << " started twice";
      running[round].insert(rank);
      EXPECT_EQ(attempts.try_emplace(round, attempt).first->second, attempt);
      for (const auto& [other, ranks] : running) {
        EXPECT_TRUE(other == round || ranks.empty()) << "rounds " << other << " and " << round << " at once";
        EXPECT_LE(other, round) << "an older round began again";
      }
    }
    for (const auto& [number, charged] : attempts) {
      EXPECT_EQ(charged, std::distance(failed.begin(), failed.lower_bound(number))) << "restarts at round " << number;
    }
    rounds_ = static_cast<int>(attempts.size());
  }
  int rounds() const { return rounds_; }  // after Check

 private:
  static int LossesOf(Launcher& launcher) { return Count(launcher.Err(), "lost the rendezvous server"); }

  const std::string out_;
  const std::string go_;
  std::vector<std::unique_ptr<Launcher>> launchers_;
  int rounds_ = 0;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_LOGGED_JOB_H_
