// rendezvousd with a state folder is killed repeatedly, each time after a random number of events of the jobs that
// form, fail, restart and end on it. No round is assigned twice, no restart charge is lost or counted twice, and every
// launcher exits with its job's code.
//
// Manual runs with higher numbers (the seed determines the kills; their effect depends on the machine):
//   DDPRUN_KILLS=200 DDPRUN_KILL_JOBS=20 DDPRUN_KILL_SEED=1 bazel run //tests/e2e:e2e_tests -- --gtest_filter=ServerK*

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

constexpr int kNodes = 2;
constexpr int kMaxRestarts = 2;

int FromEnvironment(const char* name, int otherwise) {
  int value = otherwise;
  if (const char* text = std::getenv(name)) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &value)) << name;
  }
  return value;
}

// Script of a job's workers, and the expected exit code of its launchers.
struct Kind {
  const char* name;
  const char* script;  // $LINE is "rank round attempt"
  int exit_code;
};
constexpr Kind kKinds[] = {
    {"ends well", "sleep $SECONDS_TO_RUN", 0},
    {"fails twice, then ends well",
     "if [ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then sleep 0.$DELAY; echo fail $LINE >>$OUT; exit 3; "
     "fi;"
     "sleep $SECONDS_TO_RUN",
     0},
    {"fails until no restart is left",
     "if [ $RANK = 1 ]; then sleep 0.$DELAY; echo fail $LINE >>$OUT; exit 5; fi; sleep 600", 5},
    {"ends with 78", "if [ $RANK = 0 ]; then sleep $SECONDS_TO_RUN; exit 78; fi; sleep 600", 78},
};

class Job {
 public:
  Job(int number, int port, const TempDir& dir, int seconds, int delay)
      : name_(absl::StrCat("job", number)), kind_(kKinds[number % std::size(kKinds)]), out_(dir.File(name_)) {
    const std::string script =
        absl::StrCat("LINE=\"$RANK $DDPRUN_ROUND $TORCHELASTIC_RESTART_COUNT\"; OUT=", out_,
                     "; SECONDS_TO_RUN=", seconds, "; DELAY=", delay, "; echo start $LINE >>$OUT; ", kind_.script);
    for (int node = 0; node < kNodes; ++node) {
      std::vector<std::string> flags = {absl::StrCat("--nnodes=", kNodes),
                                        "--nproc-per-node=1",
                                        absl::StrCat("--rdzv-endpoint=127.0.0.1:", port),
                                        "--rdzv-id=" + name_,
                                        "--rdzv-conf=is_host=0",
                                        absl::StrCat("--max-restarts=", kMaxRestarts),
                                        "--no-python",
                                        "sh",
                                        "-c",
                                        script};
      launchers_.push_back(std::make_unique<Launcher>(std::move(flags)));
    }
  }

  // Number of its workers that have started, and that have failed, so far.
  int Starts() const { return Count(ReadFile(out_), "start"); }
  int Failures() const { return Count(ReadFile(out_), "fail"); }
  // Number of times its launchers have lost the server, and number of connected launchers.
  int Losses() const {
    int losses = 0;
    for (const auto& launcher : launchers_) losses += LossesOf(*launcher);
    return losses;
  }
  int Connected() const {
    if (Starts() == 0) return 0;  // no loss may mean that no connection existed yet
    return std::count_if(launchers_.begin(), launchers_.end(), [](const auto& launcher) {
      return Alive(launcher->pid()) && Count(launcher->Err(), "reached the rendezvous server") >= LossesOf(*launcher);
    });
  }

  bool Ended() const {
    return std::none_of(launchers_.begin(), launchers_.end(), [](const auto& l) { return Alive(l->pid()); });
  }

  void Check() {
    SCOPED_TRACE(absl::StrCat(name_, " (", kind_.name, ")"));
    for (const auto& launcher : launchers_) EXPECT_EQ(launcher->Wait(), kind_.exit_code) << launcher->Err();
    const std::string lines = ReadFile(out_);
    SCOPED_TRACE(lines);
    std::set<std::pair<int, int>> started;  // round, rank
    std::map<int, int> attempts;            // key: round
    std::set<int> failed;                   // rounds
    std::istringstream stream(lines);
    std::string what;
    int rank = 0, round = 0, attempt = 0;
    while (stream >> what >> rank >> round >> attempt) {
      if (what == "fail") {
        failed.insert(round);
        continue;
      }
      EXPECT_TRUE(started.insert({round, rank}).second) << "round " << round << " came twice";
      EXPECT_EQ(attempts.try_emplace(round, attempt).first->second, attempt) << "round " << round << " came twice";
    }
    for (const auto& [number, charged] : attempts) {
      EXPECT_EQ(charged, std::distance(failed.begin(), failed.lower_bound(number))) << "restarts at round " << number;
    }
    rounds_ = static_cast<int>(attempts.size());
  }
  int rounds() const { return rounds_; }

 private:
  static int LossesOf(Launcher& launcher) { return Count(launcher.Err(), "lost the rendezvous server"); }

  const std::string name_;
  const Kind& kind_;
  const std::string out_;
  std::vector<std::unique_ptr<Launcher>> launchers_;
  int rounds_ = 0;
};

class ServerKillsTest : public ::testing::Test {
 protected:
  void StartServer() {
    server_ = std::make_unique<Rendezvousd>(
        port_, std::vector<std::string>{"--state-dir=" + dir_.File("state"), "--log-level=INFO"});
  }
  void StopServer(int signal) {
    server_->Signal(signal);
    EXPECT_EQ(server_->Wait(), signal == SIGTERM ? 0 : 128 + signal) << server_->Err();
    EXPECT_EQ(server_->Err().find("damaged"), std::string::npos) << server_->Err();
  }

  TempDir dir_;
  const int port_ = FreePort();
  std::unique_ptr<Rendezvousd> server_;
};

TEST_F(ServerKillsTest, KilledAtRandomMoments_NoRoundTwiceNoChargeLostNoWrongExitCode) {
  const int kills = FromEnvironment("DDPRUN_KILLS", 10);
  const size_t at_once = FromEnvironment("DDPRUN_KILL_JOBS", 4);
  const int seed = FromEnvironment("DDPRUN_KILL_SEED", 20261122);
  std::mt19937 random(seed);
  StartServer();
  std::vector<std::unique_ptr<Job>> jobs;
  int started = 0, ended = 0, rounds = 0;
  const auto reap = [&] {
    for (auto it = jobs.begin(); it != jobs.end();) {
      if (!(*it)->Ended()) {
        ++it;
        continue;
      }
      (*it)->Check();
      rounds += (*it)->rounds();
      ++ended;
      it = jobs.erase(it);
    }
  };
  for (int kill_number = 0; kill_number < kills && !HasFailure(); ++kill_number) {
    reap();
    while (jobs.size() < at_once)
      jobs.push_back(std::make_unique<Job>(started++, port_, dir_, 1 + random() % 5, random() % 10));
    // Every second kill comes while a failure is dealt with: that is when a charge can get lost. Of the others, every
    // second comes only after a round has begun, which may take a job that waits for nodes of a server before.
    const auto sum = [&](int (Job::*count)() const) {
      int all = 0;
      for (const auto& job : jobs) all += (job.get()->*count)();
      return all;
    };
    const auto lines = [&] { return Lines(server_->Err()); };
    const auto all_ended = [&] {
      return std::all_of(jobs.begin(), jobs.end(), [](const auto& j) { return j->Ended(); });
    };
    const auto await_more = [&](const auto& count, int more) {
      const int until = count() + more;
      EXPECT_TRUE(Eventually([&] { return count() >= until || all_ended(); })) << server_->Err();
    };
    if (kill_number % 2 == 1) await_more([&] { return sum(&Job::Failures); }, 1);
    if (kill_number % 4 == 2) await_more([&] { return sum(&Job::Starts); }, 1);
    await_more(lines, static_cast<int>(random() % 8));
    const int losses = sum(&Job::Losses);
    StopServer(kill_number % 5 == 4 ? SIGTERM : SIGKILL);
    // Now and then it stays away until a launcher has noticed.
    if (random() % 2 == 0) {
      EXPECT_TRUE(Eventually([&] { return sum(&Job::Losses) > losses || sum(&Job::Connected) == 0; }));
    }
    StartServer();
  }
  EXPECT_TRUE(Eventually([&] {
    reap();
    return jobs.empty();
  })) << server_->Err();
  std::printf("seed %d: %d kills, %d jobs ended with %d rounds\n", seed, kills, ended, rounds);
}

TEST_F(ServerKillsTest, ARunningJob_NoticesNothing) {
  StartServer();
  Job job(0, port_, dir_, 12, 0);
  ASSERT_TRUE(Eventually([&] { return job.Starts() == kNodes; }));
  for (const int signal : {SIGKILL, SIGTERM, SIGKILL}) {
    StopServer(signal);
    StartServer();
    ASSERT_TRUE(Eventually([&] { return Count(server_->Err(), " joined") == kNodes; })) << server_->Err();
  }
  job.Check();
  EXPECT_EQ(job.rounds(), 1);
}

// Two servers would give out the same rounds.
TEST_F(ServerKillsTest, SecondServerOnTheFolder_IsRefused) {
  StartServer();
  Process second({"rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--state-dir=" + dir_.File("state")});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(Lines(second.Err()), 1) << second.Err();
  EXPECT_THAT(second.Err(), HasSubstr("in use by another rendezvousd"));
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  StartServer();
}

}  // namespace
}  // namespace ddprun::testing
