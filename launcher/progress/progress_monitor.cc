#include "launcher/progress/progress_monitor.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {

namespace {

// Each stack costs a copy of the process's page tables, and a page in the log.
constexpr size_t kMostStacks = 8;
constexpr size_t kMaxLineBytes = 500;
// Fraction of one CPU above which a worker that does not exit counts as busy.
constexpr double kBusy = 0.01;
// Lower bounds of the learned limits. Work that is not reported as its own phase, such as a save, counts toward the
// previous phase. A false alarm costs a few log lines, a false restart costs the job.
constexpr absl::Duration kLeastToReport = absl::Seconds(10);
constexpr absl::Duration kLeastToRestart = absl::Minutes(1);

ProgressWatch::Settings WatchSettings(const HangPolicy& policy) {
  ProgressWatch::Settings settings;
  settings.fixed_limit = policy.fixed_limit;
  settings.least = policy.restart ? kLeastToRestart : kLeastToReport;
  return settings;
}

std::string Indented(const std::string& text) {
  std::string result;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&result, "    ", OneLine(line, kMaxLineBytes), "\n");
  }
  return result;
}

}  // namespace

ProgressMonitor::ProgressMonitor(const LaunchConfig& config, EventLoop* loop, TerminalLine* line, Events events)
    : policy_(config.options.hang),
      loop_(loop),
      events_(std::move(events)),
      watch_(WatchSettings(policy_)),
      display_(config.options.output.progress, line) {}

void ProgressMonitor::BeginRound(const rendezvous::Assignment& assignment, int32_t slots) {
  if (!board_.BeginRound(assignment, slots)) return;
  report_ = nullptr;
  open_hang_.clear();
  cpu_times_.clear();
  watch_.StartRound(slots, board_.other_nodes());
}

void ProgressMonitor::OnProgress(int32_t local_rank, const ReportedProgress& report) {
  if (!board_.OnProgress(local_rank, report)) return;
  display_.Start(report.at);
  if (!policy_.watch) return;
  ProgressEffects effects;
  watch_.OnProgress(local_rank, report.progress, report.at, &effects);
  Handle(effects);
}

void ProgressMonitor::OnEnded(int32_t local_rank) {
  if (board_.OnEnded(local_rank)) watch_.OnEnded(local_rank, SteadyNow());
}

SteadyTime ProgressMonitor::NextDeadline() const {
  return std::min({HangDeadline(), display_.NextDeadline(), reports_.NextDeadline()});
}

std::optional<rendezvous::Progress> ProgressMonitor::OnDeadline(SteadyTime now) {
  if (now >= HangDeadline()) OnHangDeadline(now);
  if (now >= display_.NextDeadline()) {
    display_.Show(events_.workers_running() ? ProgressSummary(board_, now) : "", now);
  }
  return reports_.Take(now);
}

void ProgressMonitor::OnHangDeadline(SteadyTime now) {
  if (!events_.workers_running()) return watch_.EndRound();
  // Process reports that have already arrived before judging.
  events_.read_reports();
  ProgressEffects effects;
  watch_.OnDeadline(now, &effects);
  Handle(effects);
}

void ProgressMonitor::Handle(const ProgressEffects& effects) {
  for (const ProgressEffect& effect : effects) {
    if (!events_.workers_running()) return;
    if (const auto* hang = std::get_if<effect::Hang>(&effect)) {
      OnHang(*hang);
    } else if (const auto* not_exited = std::get_if<effect::NotExited>(&effect)) {
      OnNotExited(*not_exited);
    } else if (const auto* ended = std::get_if<effect::HangEnded>(&effect)) {
      open_hang_.clear();
      events_.warn(HangEndedText(*ended, board_.base_rank()));
    } else if (const auto* stragglers = std::get_if<effect::Stragglers>(&effect)) {
      const bool known =
          std::all_of(stragglers->ranks.begin(), stragglers->ranks.end(), [this](const Straggler& straggler) {
            return events_.is_straggler(board_.base_rank() + straggler.local_rank);
          });
      if (!known) events_.warn(StragglersText(*stragglers, board_.base_rank()));
    }
  }
}

void ProgressMonitor::OnHang(const effect::Hang& hang) {
  if (report_ != nullptr) return;
  // Hung workers first, since the number of stacks is limited.
  std::vector<int32_t> ranks;
  for (const WorkerStanding& standing : hang.behind) ranks.push_back(standing.local_rank);
  for (const WorkerStanding& standing : hang.waiting) ranks.push_back(standing.local_rank);
  Report report{.line = HangText(hang, board_.base_rank()), .is_hang = true};
  // A learned limit says little about other nodes, and nothing about what a rank does after the last step.
  const bool others_are_done = !hang.ended.empty() || !hang.finished.empty();
  const bool doubtful = policy_.fixed_limit == absl::ZeroDuration() && (hang.elsewhere || others_are_done);
  if (policy_.restart && !doubtful) report.hung = hang.behind;
  CollectStacks(std::move(report), std::move(ranks));
}

void ProgressMonitor::OnNotExited(const effect::NotExited& not_exited) {
  const int32_t rank = not_exited.local_rank;
  const pid_t pid = events_.process_of(rank);
  if (pid == 0) return;
  const absl::Duration cpu_time = CpuTimeOfSession(pid);
  const absl::Duration used = cpu_time - std::exchange(cpu_times_[rank], cpu_time);
  // The worker or its children may be saving.
  if (not_exited.kill && used > kBusy * not_exited.stood) return;
  const std::string line = NotExitedText(not_exited, board_.base_rank(), pid);
  if (not_exited.kill) {
    events_.warn(line);
    events_.kill_finished(rank);
  } else if (report_ != nullptr) {
    events_.warn(line);
  } else {
    CollectStacks(Report{.line = line}, {rank});
  }
}

void ProgressMonitor::CollectStacks(Report report, std::vector<int32_t> ranks) {
  report_ = std::make_unique<Report>(std::move(report));
  report_->round = board_.round();
  ranks.resize(std::min(ranks.size(), kMostStacks));
  for (const int32_t rank : ranks) {
    const pid_t pid = events_.process_of(rank);
    if (pid == 0) continue;
    report_->probes[rank] =
        std::make_unique<StackProbe>(loop_, pid, [this, rank](const std::string& text) { OnStacks(rank, text); });
  }
  if (report_->probes.empty()) EndReport();
}

void ProgressMonitor::OnStacks(int32_t local_rank, const std::string& text) {
  report_->stacks[local_rank] = text;
  if (report_->stacks.size() == report_->probes.size()) EndReport();
}

void ProgressMonitor::EndReport() {
  // Destroying the probe that called this is deferred until it has returned.
  const std::shared_ptr<Report> report = std::move(report_);
  loop_->Post([report] {});
  if (report->round != board_.round() || !events_.workers_running()) return;
  std::string stacks;
  for (const auto& [rank, text] : report->stacks) {
    absl::StrAppend(&stacks, "  rank ", board_.base_rank() + rank, " (pid ", events_.process_of(rank), "):\n",
                    Indented(text));
  }
  if (report->is_hang) open_hang_ = absl::StrCat(report->line, "\n", stacks);
  events_.warn(report->line);
  events_.print(stacks);
  for (const WorkerStanding& standing : report->hung) {
    events_.kill(standing.local_rank, HangFailureText(standing), report->stacks[standing.local_rank]);
  }
}

}  // namespace ddprun::launcher
