// Programs whose exec takes seconds, as with an on-access scanner or a cold network file system: the job forms, and
// workers of two rounds never run at once (protocol 4.5). Real launchers and workers; fanotify delays the exec.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "tests/hosts/hosts.h"
#include "tests/hosts/tick_job.h"

namespace ddprun::testing {
namespace {

// A separate file system with a copy of a program, each exec of which is delayed by the current `delay`.
class SlowProgram {
 public:
  using Delay = std::function<absl::Duration()>;

  SlowProgram(const std::string& program, Delay delay) : delay_(std::move(delay)) {
    const char* const failed = Prepare(program);
    if (failed != nullptr) {
      unavailable_ = absl::StrCat(failed, ": ", strerror(errno));
    } else {
      thread_ = std::thread([this] { Serve(); });
    }
  }
  ~SlowProgram() {
    {
      MutexLock lock(&mutex_);
      ends_ = true;
    }
    if (thread_.joinable()) thread_.join();
    if (fanotify_ >= 0) close(fanotify_);
    if (mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }

  std::string path() const { return dir_.File("program"); }
  // Reason why this is unsupported here; empty if it is supported.
  const std::string& unavailable() const { return unavailable_; }
  // Number of execs that have begun.
  int begun() {
    MutexLock lock(&mutex_);
    return begun_;
  }

 private:
  struct Waiting {
    SteadyTime until;
    int fd;
  };

  // The step that failed; null if none.
  const char* Prepare(const std::string& program) {
    const char* const folder = dir_.path().c_str();
    if (mount("tmpfs", folder, "tmpfs", 0, nullptr) != 0) return "mounting a tmpfs";
    mounted_ = true;
    std::filesystem::copy_file(program, path());
    fanotify_ = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY | O_CLOEXEC);
    if (fanotify_ < 0) return "fanotify_init";
    // Marks the file system, not the mount: hosts have copies of the mount.
    constexpr unsigned kWhat = FAN_MARK_ADD | FAN_MARK_FILESYSTEM;
    return fanotify_mark(fanotify_, kWhat, FAN_OPEN_EXEC_PERM, AT_FDCWD, folder) == 0 ? nullptr : "fanotify_mark";
  }

  void Serve() {
    std::vector<Waiting> waiting;
    for (bool ends = false; !ends;) {
      SteadyTime next = SteadyNow() + absl::Milliseconds(50);
      for (const Waiting& one : waiting) next = std::min(next, one.until);
      pollfd ready{fanotify_, POLLIN, 0};
      poll(&ready, 1, std::max<int64_t>(0, absl::ToInt64Milliseconds(next - SteadyNow() + absl::Milliseconds(1))));
      alignas(fanotify_event_metadata) char buffer[4096];
      ssize_t got = read(fanotify_, buffer, sizeof buffer);
      for (auto* event = reinterpret_cast<fanotify_event_metadata*>(buffer); FAN_EVENT_OK(event, got);
           event = FAN_EVENT_NEXT(event, got)) {
        MutexLock lock(&mutex_);
        ++begun_;
        waiting.push_back({SteadyNow() + delay_(), event->fd});
      }
      {
        MutexLock lock(&mutex_);
        ends = ends_;
      }
      for (auto one = waiting.begin(); one != waiting.end();) {
        if (!ends && SteadyNow() < one->until) {
          ++one;
          continue;
        }
        const fanotify_response response{one->fd, FAN_ALLOW};
        // Fails if the waiting process was killed.
        if (write(fanotify_, &response, sizeof response) < 0 && errno != ENOENT) abort();
        close(one->fd);
        one = waiting.erase(one);
      }
    }
  }

  TempDir dir_;
  const Delay delay_;
  std::string unavailable_;
  bool mounted_ = false;
  int fanotify_ = -1;
  std::thread thread_;
  Mutex mutex_;
  bool ends_ = false;
  int begun_ = 0;
};

#define SKIP_WITHOUT(program) \
  if (!(program).unavailable().empty()) GTEST_SKIP() << (program).unavailable()

constexpr char kTick[] = "tests/testbin/tick";

TEST(SlowExecTest, ManyWorkers_OneRound) {
  SKIP_WITHOUT_HOSTS();
  for (const auto& [workers, delay] : {std::pair(3, absl::Seconds(2)), std::pair(8, absl::Milliseconds(350))}) {
    SlowProgram slow(kTick, [delay = delay] { return delay; });
    SKIP_WITHOUT(slow);
    Hosts hosts(2, Hosts::Addresses::kIpv4);
    const TickJob::Node node{workers, slow.path()};
    TickJob job(&hosts,
                workers == 3 ? TickJob::Settings{1, "1:2", {{}, node}} : TickJob::Settings{1, "2", {node, node}});
    ASSERT_TRUE(Eventually([&] { return job.IsWhole(SteadyTime()); })) << job.Said();
    job.EndWell();
    job.ExpectOneWorldAtATime();
    EXPECT_EQ(job.rounds(), 1) << job.Said();
  }
}

TEST(SlowExecTest, Exec_LauncherStoppedMeanwhile_OneRoundAtATime) {
  SKIP_WITHOUT_HOSTS();
  SlowProgram slow(kTick, [] { return absl::Seconds(5); });
  SKIP_WITHOUT(slow);
  Hosts hosts(2, Hosts::Addresses::kIpv4);
  TickJob job(&hosts, {1, "1:2", {{}, {1, slow.path()}}});
  ASSERT_TRUE(Eventually([&] { return slow.begun() == 1; })) << job.Said();
  const SteadyTime stopped = SteadyNow();
  kill(job.launcher(1).pid(), SIGSTOP);
  PassUntil(stopped + absl::Seconds(6));
  const std::vector<Tick> ticks = job.Ticks();
  ASSERT_FALSE(ticks.empty());
  EXPECT_EQ(ticks.back().world, 1) << "the other node did not go on alone";
  kill(job.launcher(1).pid(), SIGCONT);
  const SteadyTime awake = SteadyNow();
  ASSERT_TRUE(Eventually([&] { return job.IsWhole(awake); })) << job.Said();
  job.EndWell();
  job.ExpectOneWorldAtATime();
}

// Jobs on three nodes with execs of random lengths, and launchers that are stopped for a while.
// DDPRUN_SLOW_EXEC_SEED=first[:batches] selects other seeds.
TEST(SlowExecTest, Exec_RandomDelays_OneRoundAtATimeAndEveryJobEnds) {
  SKIP_WITHOUT_HOSTS();
  constexpr int kJobs = 4, kNodes = 3, kStops = 2;
  uint64_t first = 1, batches = 1;
  if (const char* text = getenv("DDPRUN_SLOW_EXEC_SEED"); text != nullptr) {
    const std::string given = text;
    const size_t colon = given.find(':');
    ASSERT_TRUE(absl::SimpleAtoi(given.substr(0, colon), &first));
    if (colon != std::string::npos) {
      ASSERT_TRUE(absl::SimpleAtoi(given.substr(colon + 1), &batches));
    }
  }
  int execs = 0, rounds = 0;
  for (uint64_t seed = first; seed < first + batches; ++seed) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed), delays(seed + 1000);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    SlowProgram slow(kTick, [&] { return absl::Milliseconds(delays() % (delays() % 3 == 0 ? 5000 : 1500)); });
    SKIP_WITHOUT(slow);
    Hosts hosts(kJobs * kNodes, Hosts::Addresses::kIpv4);
    std::vector<std::unique_ptr<TickJob>> jobs;
    for (int i = 0; i < kJobs; ++i) {
      const std::vector<TickJob::Node> nodes(kNodes, {1 + below(2), slow.path()});
      jobs.push_back(std::make_unique<TickJob>(&hosts, TickJob::Settings{1 + i * kNodes, "1:3", nodes}));
    }
    for (int stop = 0; stop < kStops; ++stop) {
      PassUntil(SteadyNow() + absl::Milliseconds(1000 + below(1500)));
      std::vector<int> who;
      for (int i = 0; i < kJobs; ++i) who.push_back(1 + below(kNodes - 1));
      for (int i = 0; i < kJobs; ++i) kill(jobs[i]->launcher(who[i]).pid(), SIGSTOP);
      PassUntil(SteadyNow() + absl::Milliseconds(2000 + below(4000)));
      for (int i = 0; i < kJobs; ++i) kill(jobs[i]->launcher(who[i]).pid(), SIGCONT);
    }
    const SteadyTime calm = SteadyNow();
    for (const auto& job : jobs) {
      ASSERT_TRUE(Eventually([&] { return job->IsWhole(calm); })) << job->Said();
      job->EndWell();
      job->ExpectOneWorldAtATime();
      rounds += job->rounds();
    }
    execs += slow.begun();
  }
  std::printf("%d slow execs, %d rounds in which workers ran\n", execs, rounds);
  EXPECT_GT(rounds, kJobs) << "nothing was shown";
}

}  // namespace
}  // namespace ddprun::testing
