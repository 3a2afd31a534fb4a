#include "launcher/inspect/inspector.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/background_calls.h"
#include "base/mutex.h"
#include "base/text.h"
#include "launcher/process/proc_files.h"
#include "proto/hang.pb.h"
#include "proto/time.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Inspection;
using rendezvous::RankOutput;

constexpr absl::Duration kFollowInterval = absl::Seconds(1);
constexpr size_t kMaxAnswerBytes = 2 << 20;
// Questions of a kind at once; the server asks fewer of one job.
constexpr size_t kMostQuestions = 32;
constexpr absl::Duration kPatienceAtEnd = absl::Milliseconds(500);
// Rates are measured since the last question if that was in these bounds, else for kSampleTime.
constexpr absl::Duration kShortestSample = absl::Milliseconds(100);
constexpr absl::Duration kLongestSample = absl::Seconds(15);
constexpr absl::Duration kSampleTime = absl::Milliseconds(500);
constexpr absl::Duration kCountPatience = absl::Seconds(1);

uint32_t RandomProcess() {
  uint32_t number = 0;
  (void)absl::SimpleHexAtoi(RandomId().substr(0, 6), &number);
  return std::max(number, 1U);
}

int64_t ResidentBytes(pid_t pid) {
  // "SIZE RESIDENT ...", in pages.
  const std::string statm = ReadSmallFile(absl::StrCat("/proc/", pid, "/statm"));
  const std::vector<absl::string_view> pages = absl::StrSplit(statm, ' ');
  int64_t resident = 0;
  if (pages.size() < 2 || !absl::SimpleAtoi(pages[1], &resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

std::map<int32_t, UsageSample> SampleWorkers(const std::map<int32_t, pid_t>& workers) {
  const std::vector<TcpConnection> connections = ReadTcpConnections();
  const std::map<pid_t, GpuUse> gpus = ReadGpuUse();
  std::map<int32_t, UsageSample> samples;
  for (const auto& [local_rank, worker] : workers) {
    UsageSample& sample = samples[local_rank];
    sample.worker = worker;
    sample.activity = SampleActivity(worker, connections);
    for (const auto& [pid, activity] : sample.activity.processes) {
      sample.memory_bytes += ResidentBytes(pid);
      const auto used = gpus.find(pid);
      if (used == gpus.end()) continue;
      if (!sample.gpu) sample.gpu.emplace();
      sample.gpu->memory_bytes += used->second.memory_bytes;
      sample.gpu->busy = std::max(sample.gpu->busy, used->second.busy);
    }
  }
  return samples;
}

}  // namespace

rendezvous::RankUsage UsageBetween(int32_t rank, const UsageSample& before, const UsageSample& after) {
  hang::v1::Rank activity;
  SetActivity(before.activity, after.activity, &activity);
  rendezvous::RankUsage usage;
  usage.set_rank(rank);
  usage.set_pid(after.worker);
  usage.set_cpu(activity.cpu());
  usage.set_memory_bytes(after.memory_bytes);
  usage.set_io(activity.io());
  usage.set_net(activity.net());
  const double seconds = absl::ToDoubleSeconds(after.activity.at - before.activity.at);
  if (before.collectives && after.collectives && *after.collectives >= *before.collectives && seconds > 0) {
    usage.set_collectives(static_cast<double>(*after.collectives - *before.collectives) / seconds);
  }
  if (after.gpu && after.gpu->busy) usage.set_gpu(*after.gpu->busy);
  if (after.gpu) usage.set_gpu_memory_bytes(after.gpu->memory_bytes);
  return usage;
}

Inspector::Inspector(EventLoop* loop, int32_t slots, Events events)
    : loop_(loop),
      events_(std::move(events)),
      workers_(slots),
      timer_(loop->AddTimer([this] { return NextDeadline(); }, [this](SteadyTime now) { OnDeadline(now); })) {}

Inspector::~Inspector() = default;

void Inspector::OnOutput(int32_t local_rank, const OutputSource& out, const OutputSource& err) {
  Worker& worker = workers_[local_rank];
  worker.out = {{RandomProcess(), out}, std::move(worker.out.current)};
  worker.err = {{RandomProcess(), err}, std::move(worker.err.current)};
}

void Inspector::Inspect(const rendezvous::Inspect& inspect, const std::vector<int32_t>& local_ranks) {
  const bool output = inspect.what() == rendezvous::Inspect::WHAT_OUTPUT && outputs_.size() < kMostQuestions;
  const bool usage = inspect.what() == rendezvous::Inspect::WHAT_USAGE && usages_.size() < kMostQuestions;
  if (local_ranks.empty() || (!output && !usage)) {
    return events_.send(rendezvous::NewInspection(inspect.id(), inspect.round(), /*last=*/true));
  }
  if (output) {
    const absl::Duration wait = inspect.after().empty() ? absl::ZeroDuration() : kFollowInterval;
    outputs_.push_back({inspect, local_ranks, SteadyNow() + wait, nullptr});
    if (wait == absl::ZeroDuration()) OnDeadline(SteadyNow());
  } else {
    usages_.push_back(std::make_shared<UsageQuestion>());
    usages_.back()->asked = inspect;
    usages_.back()->local_ranks = local_ranks;
    Sample(usages_.back());
  }
}

SteadyTime Inspector::NextDeadline() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const OutputQuestion& question : outputs_) {
    if (question.reading == nullptr) next = std::min(next, question.due);
  }
  for (const Usage& question : usages_) next = std::min(next, question->due);
  return next;
}

void Inspector::OnDeadline(SteadyTime now) {
  for (auto question = outputs_.begin(); question != outputs_.end(); ++question) {
    if (question->reading != nullptr || question->due > now) continue;
    question->reading = std::make_unique<BackgroundCall<std::vector<RankOutput>>>(
        loop_, Reading(*question), [this, question](std::vector<RankOutput> outputs) {
          SendOutput(question->asked, std::move(outputs));
          outputs_.erase(question);
        });
  }
  const std::list<Usage> usages = usages_;  // a copy: answered ones are removed
  for (const Usage& question : usages) {
    if (question->due > now) continue;
    question->due = SteadyTime::InfiniteFuture();
    if (question->sampling != nullptr && question->missing == 0) {
      Sample(question);
    } else if (!question->samples.empty()) {
      OnSampled(question);  // without counts of collectives
    }
  }
}

// ---- output ----

std::function<std::vector<RankOutput>()> Inspector::Reading(const OutputQuestion& question) const {
  std::map<std::pair<int32_t, bool>, uint64_t> after;
  for (const v1::OutputPosition& position : question.asked.after()) {
    after[{position.rank(), position.is_stderr()}] = position.end();
  }
  std::vector<AskedStream> streams;
  for (size_t i = 0; i < question.local_ranks.size(); ++i) {
    const Worker& worker = workers_[question.local_ranks[i]];
    for (const bool is_stderr : {false, true}) {
      const Streams& of_worker = is_stderr ? worker.err : worker.out;
      const int32_t rank = question.asked.ranks(static_cast<int>(i));
      const auto position = after.find({rank, is_stderr});
      streams.push_back({rank, is_stderr, of_worker.current, of_worker.previous,
                         position == after.end() ? std::nullopt : std::optional(position->second)});
    }
  }
  std::optional<absl::Duration> since;
  if (question.asked.has_since()) since = ToDuration(question.asked.since());
  return [streams = std::move(streams), since] { return AnswerOutput(streams, since, kMaxAnswerBytes); };
}

void Inspector::SendOutput(const rendezvous::Inspect& asked, std::vector<RankOutput> outputs) {
  rendezvous::SendInParts(asked, std::move(outputs), rendezvous::kMaxOutputsInInspection, &Inspection::add_outputs,
                          events_.send);
}

void Inspector::AnswerNow() {
  struct Shared {
    Mutex mutex;
    std::vector<std::vector<RankOutput>> answers ABSL_GUARDED_BY(mutex);
  };
  if (outputs_.empty()) return;
  const auto shared = std::make_shared<Shared>();
  std::vector<std::function<std::vector<RankOutput>()>> readings;
  for (const OutputQuestion& question : outputs_) readings.push_back(Reading(question));
  BackgroundCalls calls;  // the file system may stall
  calls.Start([shared, readings] {
    for (const auto& read : readings) {
      std::vector<RankOutput> answer = read();
      MutexLock lock(&shared->mutex);
      shared->answers.emplace_back(std::move(answer));
    }
  });
  calls.Wait(kPatienceAtEnd);
  MutexLock lock(&shared->mutex);
  auto question = outputs_.begin();
  for (std::vector<RankOutput>& answer : shared->answers) SendOutput((question++)->asked, std::move(answer));
  outputs_.clear();
}

// ---- usage ----

void Inspector::Sample(const Usage& question) {
  std::map<int32_t, pid_t> workers;
  question->samples.clear();
  question->counts.clear();
  question->missing = 1;
  for (const int32_t local_rank : question->local_ranks) {
    const pid_t worker = events_.process_of(local_rank);
    if (worker == 0) continue;
    workers[local_rank] = worker;
    question->missing += events_.count_collectives(
        local_rank,
        [this, weak = std::weak_ptr(question), again = question->again, local_rank](std::optional<int64_t> count) {
          const Usage asking = weak.lock();
          if (asking == nullptr || asking->missing == 0 || asking->again != again) return;
          if (count) asking->counts[local_rank] += *count;
          OnPartDone(asking);
        });
  }
  question->sampling = std::make_unique<BackgroundCall<std::map<int32_t, UsageSample>>>(
      loop_, [workers] { return SampleWorkers(workers); },
      [this, weak = std::weak_ptr(question)](std::map<int32_t, UsageSample> samples) {
        const Usage asking = weak.lock();
        if (asking == nullptr) return;
        asking->samples = std::move(samples);
        asking->due = SteadyNow() + kCountPatience;
        OnPartDone(asking);
      });
}

void Inspector::OnPartDone(const Usage& question) {
  if (--question->missing == 0) OnSampled(question);
}

void Inspector::OnSampled(const Usage& question) {
  question->missing = 0;
  question->due = SteadyTime::InfiniteFuture();
  std::vector<rendezvous::RankUsage> usages;
  bool complete = true;
  for (size_t i = 0; i < question->local_ranks.size(); ++i) {
    const int32_t local_rank = question->local_ranks[i], rank = question->asked.ranks(static_cast<int>(i));
    Worker& worker = workers_[local_rank];
    const auto found = question->samples.find(local_rank);
    rendezvous::RankUsage& usage = usages.emplace_back();
    usage.set_rank(rank);
    if (found == question->samples.end()) continue;  // it has ended
    UsageSample& sample = found->second;
    if (const auto count = question->counts.find(local_rank); count != question->counts.end()) {
      sample.collectives = count->second;
    }
    const std::optional<UsageSample> before = std::exchange(worker.sample, sample);
    const absl::Duration time = before ? sample.activity.at - before->activity.at : absl::ZeroDuration();
    const bool fits = before && before->worker == sample.worker && time >= kShortestSample && time <= kLongestSample;
    usage = UsageBetween(rank, fits ? *before : sample, sample);
    if (before && time < kShortestSample) worker.sample = before;  // kept: the last question was answered just now
    complete = complete && fits;
  }
  if (!complete && !std::exchange(question->again, true)) {
    question->due = SteadyNow() + kSampleTime;
    return;
  }
  rendezvous::SendInParts(question->asked, std::move(usages), rendezvous::kMaxUsagesInInspection,
                          &Inspection::add_usages, events_.send);
  usages_.remove(question);
}

}  // namespace ddprun::launcher
