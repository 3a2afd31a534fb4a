#include "launcher/hang/hang_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

using hang::v1::NodeEvidence;
using Activity = RankState::Activity;
using Kind = Verdict::Kind;

constexpr double kTimesTheLongest = 3;
// Nodes notice changes, and send evidence about them, within this time of each other.
constexpr absl::Duration kSlack = absl::Seconds(10);
// A time on this host's clock: at least 1, if it is known.
int64_t OnOwnClock(int64_t time_us, int64_t shift_us) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (time_us <= 0) return 0;
  return std::max<int64_t>(std::min(time_us, kMost) + std::clamp(shift_us, -kMost, kMost), 1);
}

// True if the evidence tells what ranks have entered.
bool HasCollectives(const NodeEvidence& evidence) {
  return std::any_of(evidence.ranks().begin(), evidence.ranks().end(),
                     [](const hang::v1::Rank& rank) { return rank.recorded(); });
}

// Collectives of a group that are compared when all ranks wait: the pending one, and a past that predicts it.
constexpr int kGlanced = 32;

int64_t CountEnded(const NodeEvidence& evidence) {
  return std::count_if(evidence.ranks().begin(), evidence.ranks().end(),
                       [](const hang::v1::Rank& rank) { return !rank.ended().empty(); });
}

}  // namespace

SteadyTime HangWatch::Node::since() const {
  const absl::Duration stood = absl::Milliseconds(std::max<int64_t>(evidence.stood_ms(), 0));
  return arrived - std::min(stood, absl::Hours(24 * 365));
}

absl::Duration HangWatch::Pause(absl::Duration stood) const { return std::clamp(stood / 4, suspect_, kMaxPause); }

void HangWatch::StartRound(const Round& round, SteadyTime now) {
  const absl::Duration longest_pause = longest_pause_;
  *this = HangWatch(settings_);
  longest_pause_ = longest_pause;
  round_ = round;
  workers_.assign(std::max(round.slots, 0), {});
  moved_ = now;
  ask_.Set(now + kAsk);
  sample_.Set(now + suspect_ / 2);
}

bool HangWatch::AllWait() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.waits && worker.ended.empty(); });
}

NodeEvidence HangWatch::Blank(absl::Duration stood) const {
  NodeEvidence evidence;
  evidence.set_round(round_->round);
  evidence.set_host(round_->host);
  evidence.set_group_rank(round_->group_rank);
  evidence.set_stood_ms(absl::ToInt64Milliseconds(stood));
  evidence.set_waits(stood >= kGlance && AllWait());
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].ended.empty()) continue;
    hang::v1::Rank* ended = evidence.add_ranks();
    ended->set_rank(round_->base_rank + static_cast<int32_t>(i));
    ended->set_ended(workers_[i].ended);
  }
  return evidence;
}

void HangWatch::OnCounters(int32_t local_rank, const std::string& counters, bool waits, SteadyTime now,
                           HangEffects* effects) {
  if (!Exists(local_rank) || workers_[local_rank].counters == counters) return;
  workers_[local_rank].counters = counters;
  workers_[local_rank].waits = waits;
  Moved(now, effects);
}

void HangWatch::OnEnded(int32_t local_rank, const std::string& text, SteadyTime now, HangEffects* effects) {
  if (!Exists(local_rank) || !workers_[local_rank].ended.empty()) return;
  workers_[local_rank].ended = text.empty() ? "ended" : text;
  ForgetPause();
  if (!look_.running()) return;
  sent_ = true;  // the launcher of group rank 0 must know
  Moved(now, effects);
}

void HangWatch::Moved(SteadyTime now, HangEffects* effects) {
  const bool first = !announce_.running();
  moved_ = now;
  look_.Set(now + suspect_);
  glance_.Set(AllWait() ? now + kGlance : SteadyTime::InfiniteFuture());
  if (first) compare_.Set(now + compare_after_);
  if (leads()) {
    announce_.Set(now + kMaxPause);
    return EndPause(now, effects);
  }
  // The first time, and whenever a pause ends that the launcher of group rank 0 knows about.
  if (first || sent_) announce_.Set(now);
  sent_ = false;
}

void HangWatch::EndIdleTime(SteadyTime now) {
  if (idle_since_) longest_pause_ = std::max(longest_pause_, now - *idle_since_);
  idle_since_.reset();
}

void HangWatch::EndPause(SteadyTime now, HangEffects* effects) {
  judge_.Clear();
  EndIdleTime(now);
  if (reported_) {
    effects->push_back(hang_effect::Continued{
        absl::StrCat("continued after ", RemainingText(absl::Floor(now - reported_since_, absl::Seconds(1))))});
  }
  ForgetPause();
}

void HangWatch::ForgetPause() {
  last_.reset();
  idle_since_.reset();
  reported_.reset();
  without_stacks_ = false;
  replaced_ = false;
}

SteadyTime HangWatch::NextDeadline() const {
  if (!round_) return SteadyTime::InfiniteFuture();
  return std::min({ask_.at(), sample_.at(), glance_.at(), look_.at(), judge_.at(), compare_.at(), compare_others_.at(),
                   leads() ? SteadyTime::InfiniteFuture() : announce_.at()});
}

void HangWatch::OnDeadline(SteadyTime now, HangEffects* effects) {
  if (!round_) return;
  if (now - NextDeadline() > kSlack && look_.running()) {
    // This process was not running for a while: what it knows is out of date.
    look_.Set(now + suspect_);
    judge_.Clear();
    last_.reset();
    idle_since_.reset();
  }
  if (ask_.Take(now)) {
    ask_.Set(now + kAsk);
    effects->push_back(hang_effect::AskCounters{});
  }
  if (sample_.Take(now)) {
    sample_.Set(now + suspect_ / 2);
    effects->push_back(hang_effect::Sample{});
  }
  if (glance_.Take(now) && glances_until_ < now + (kGlances - 1) * kGlanceInterval) {
    glances_until_ = std::max(glances_until_, now) + kGlanceInterval;
    effects->push_back(hang_effect::AskCollectives{});
  }
  if (look_.Take(now)) {
    // Repeated if there is no answer.
    look_.Set(now + kMaxPause);
    effects->push_back(hang_effect::Collect{});
  }
  if (!leads() && announce_.Take(now)) {
    announce_.Set(now + kMaxPause);
    if (now - moved_ < suspect_ && !sent_) {
      NodeEvidence evidence = Blank(now - moved_);
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i].ended.empty()) evidence.add_ranks()->set_rank(round_->base_rank + static_cast<int32_t>(i));
      }
      effects->push_back(hang_effect::SendEvidence{std::move(evidence)});
    }
  }
  if (judge_.IsDue(now)) TryJudge(now, effects);
  if (compare_.Take(now)) {
    compare_after_ = std::min(2 * compare_after_, kMaxComparison * absl::FDivDuration(suspect_, kSuspect));
    compare_.Set(now + compare_after_);
    // Steps may take longer than a short limit's `suspect_`.
    if (now - moved_ < kSuspect) {
      compare_others_.Set(now + kPatience);
      effects->push_back(hang_effect::AskCollectives{});
    }
  }
  if (compare_others_.Take(now) && leads()) Compare(now, effects);
}

void HangWatch::OnOwnEvidence(const NodeEvidence& evidence, SteadyTime now, HangEffects* effects) {
  if (!round_) return;
  const absl::Duration stood = now - moved_;
  if (stood < suspect_) return;
  look_.Set(now + Pause(stood));
  NodeEvidence all = Blank(stood);  // a worker that has ended since comes first, and counts
  all.mutable_ranks()->MergeFrom(evidence.ranks());
  if (!leads()) {
    sent_ = true;
    effects->push_back(hang_effect::SendEvidence{std::move(all)});
    return;
  }
  nodes_[0] = {std::move(all), now};
  judge_.Set(now + kPatience);
  TryJudge(now, effects);
}

void HangWatch::OnCollectives(const NodeEvidence& evidence, SteadyTime now, HangEffects* effects) {
  if (!round_) return;
  const bool compares = compare_others_.running();
  NodeEvidence all = Blank(now - moved_);
  if (!all.waits() && !compares) return;
  all.set_sent_us(evidence.sent_us());
  all.mutable_ranks()->MergeFrom(evidence.ranks());
  if (leads() && compares) {
    NoteClock(0, all, now);
    compared_[0] = {all, now};
    if (round_->nodes == 1) compare_others_.Set(now);
  }
  if (leads() && !all.waits()) return;
  for (hang::v1::Rank& rank : *all.mutable_ranks()) {
    for (hang::v1::Group& group : *rank.mutable_groups()) {
      const int older = group.collectives_size() - kGlanced;
      if (older > 0 && !compares) group.mutable_collectives()->DeleteSubrange(0, older);
    }
  }
  if (!leads()) {
    sent_ = sent_ || all.waits();
    effects->push_back(hang_effect::SendEvidence{std::move(all)});
  } else if (!judge_.running()) {
    nodes_[0] = {std::move(all), now};
    FindDifference(now, effects);
  }
}

void HangWatch::OnNodeEvidence(const NodeEvidence& evidence, SteadyTime now, HangEffects* effects) {
  if (!leads() || evidence.round() != round_->round || evidence.group_rank() < 1 ||
      evidence.group_rank() >= round_->nodes || evidence.ranks_size() > round_->world_size) {
    return;
  }
  Node& node = nodes_[evidence.group_rank()];
  if (CountEnded(evidence) > CountEnded(node.evidence)) ForgetPause();
  const SteadyTime before = node.arrived;
  node = {evidence, now};
  NoteClock(evidence.group_rank(), evidence, now);
  if (now - node.since() < suspect_) {
    if (HasCollectives(evidence)) compared_[evidence.group_rank()] = node;
    if (node.since() > before) EndPause(now, effects);
    if (evidence.waits()) FindDifference(now, effects);
  } else if (judge_.running()) {
    TryJudge(now, effects);
  }
}

void HangWatch::FindDifference(SteadyTime now, HangEffects* effects) {
  if (reported_ || nodes_.size() < static_cast<size_t>(round_->nodes) || moved_ > nodes_[0].arrived) return;
  JobEvidence job{round_->world_size, round_->nodes, {}};
  SteadyTime since = moved_;
  int32_t known = 0;
  for (const auto& [group_rank, node] : nodes_) {
    if (!node.evidence.waits()) return;
    since = std::max(since, node.since());
    known += static_cast<int32_t>(std::count_if(node.evidence.ranks().begin(), node.evidence.ranks().end(),
                                                [](const hang::v1::Rank& rank) { return rank.recorded(); }));
    job.nodes.push_back(node.evidence);
  }
  if (known < round_->world_size) return;
  const std::optional<Verdict> verdict = Judge(job);
  if (!verdict || verdict->kind != Kind::kDiffer) return;
  last_ = reported_ = verdict;
  without_stacks_ = true;
  reported_since_ = since;
  effects->push_back(
      hang_effect::Report{HangText(*verdict, job, std::max(now - since, absl::Seconds(1))), verdict->odd});
}

void HangWatch::TryJudge(SteadyTime now, HangEffects* effects) {
  const Node& own = nodes_[0];
  JobEvidence job{round_->world_size, round_->nodes, {own.evidence}};
  SteadyTime since = own.since();
  bool complete = true;
  for (int32_t group_rank = 1; group_rank < round_->nodes; ++group_rank) {
    const auto found = nodes_.find(group_rank);
    const bool answers = found != nodes_.end() && now - found->second.arrived < kMaxPause + kPatience + kSlack;
    if (answers && found->second.evidence.stood_ms() < absl::ToInt64Milliseconds(suspect_)) {
      // It moved when it last sent a message, and may have stopped since.
      if (judge_.IsDue(now)) judge_.Clear();
      return;
    }
    if (answers && own.arrived - found->second.arrived < Pause(own.arrived - own.since()) + kSlack) {
      since = std::max(since, found->second.since());
      job.nodes.push_back(found->second.evidence);
      continue;
    }
    if (!judge_.IsDue(now)) return;
    complete = false;
    if (found == nodes_.end()) continue;
    NodeEvidence& unknown = job.nodes.emplace_back();
    unknown.set_host(found->second.evidence.host());
    for (const auto& rank : found->second.evidence.ranks()) unknown.add_ranks()->set_rank(rank.rank());
  }
  judge_.Clear();
  OnVerdict(Judge(job), job, since, complete, now, effects);
}

void HangWatch::NoteClock(int32_t group_rank, const NodeEvidence& evidence, SteadyTime now) {
  if (evidence.sent_us() <= 0) return;
  std::deque<int64_t>& shifts = clocks_[group_rank];
  shifts.push_back(absl::ToInt64Microseconds(now.since_start()) - evidence.sent_us());
  if (shifts.size() > kClocks) shifts.pop_front();
}

void HangWatch::Compare(SteadyTime now, HangEffects* effects) {
  JobEvidence job{round_->world_size, round_->nodes, {}};
  for (auto& [group_rank, node] : compared_) {
    if (now - node.arrived >= 2 * kPatience) continue;
    const std::deque<int64_t>& shifts = clocks_[group_rank];
    const int64_t shift = shifts.empty() ? 0 : *std::min_element(shifts.begin(), shifts.end());
    for (hang::v1::Rank& rank : *node.evidence.mutable_ranks()) {
      for (hang::v1::Group& group : *rank.mutable_groups()) {
        for (hang::v1::Collective& operation : *group.mutable_collectives()) {
          operation.set_entered_us(OnOwnClock(operation.entered_us(), shift));
          operation.set_ended_us(OnOwnClock(operation.ended_us(), shift));
        }
      }
    }
    job.nodes.push_back(std::move(node.evidence));
  }
  compared_.clear();
  CompareOperations(job, now, effects);
  CompareTimes(job, effects);
}

void HangWatch::CompareOperations(const JobEvidence& job, SteadyTime now, HangEffects* effects) {
  const std::optional<Mismatch> before = std::exchange(mismatch_, FindMismatch(job));
  // Other launchers have a time of their own for the next comparison.
  if (round_->nodes == 1 && mismatch_ && !before) compare_.Set(now + suspect_);
  if (mismatch_reported_ || !mismatch_ || !before) return;
  if (mismatch_->group != before->group || mismatch_->odd != before->odd) return;
  mismatch_reported_ = true;
  effects->push_back(hang_effect::ReportMismatch{mismatch_->text, mismatch_->odd});
}

void HangWatch::CompareTimes(const JobEvidence& job, HangEffects* effects) {
  const std::optional<Stragglers> found = FindStragglers(job);
  const std::vector<int32_t> before = std::exchange(stragglers_, found ? found->ranks : std::vector<int32_t>());
  if (!found || before != found->ranks || reported_stragglers_ == found->ranks) return;
  reported_stragglers_ = found->ranks;
  effects->push_back(hang_effect::ReportStragglers{found->text, found->ranks});
}

bool HangWatch::IsSoft(const Verdict& verdict, bool complete) const {
  return verdict.activity == Activity::kBusy || verdict.activity == Activity::kUnknown ||
         verdict.kind == Kind::kInside || !complete;
}

absl::Duration HangWatch::LimitOf(const Verdict& verdict, bool complete) const {
  const absl::Duration timeout = verdict.timeout > absl::ZeroDuration() ? verdict.timeout : kUnknownTimeout;
  absl::Duration limit = std::max(kLeastLimit, kTimesTheLongest * longest_pause_);
  if (verdict.kind == Kind::kIdle) {
    limit = std::max(limit, kIdleLimit);
  } else if (verdict.operation.empty()) {
    limit = std::max(limit, kInferredLimit);
  } else {
    limit = std::min(limit, std::max(timeout / 2, suspect_));
  }
  if (settings_.fixed_limit) limit = *settings_.fixed_limit;
  return IsSoft(verdict, complete) ? std::max(limit, timeout / 2) : limit;
}

void HangWatch::OnVerdict(const std::optional<Verdict>& verdict, const JobEvidence& job, SteadyTime since,
                          bool complete, SteadyTime now, HangEffects* effects) {
  const std::optional<Verdict> before = std::exchange(last_, verdict);
  const bool idle = verdict && verdict->activity != Activity::kDebugger && !IsSoft(*verdict, complete);
  const bool same = verdict && before && before->SameFault(*verdict);
  // Evidence may show that the job continues before the counters do.
  if (!idle || !same) EndIdleTime(now);
  // Their activity was measured over about this time.
  if (idle && !idle_since_) idle_since_ = std::max(since, now - suspect_);
  if (!same || verdict->activity == Activity::kDebugger) return;
  const absl::Duration stood = now - since;
  const absl::Duration limit = LimitOf(*verdict, complete);
  const absl::Duration waited = idle ? now - *idle_since_ : stood;
  // Other nodes may not look at that time, but their evidence is as new as it would be then.
  const bool late = waited >= limit;
  if (!late && limit - waited < look_.at() - now) look_.Set(now + limit - waited);
  const bool known = reported_ && reported_->SameFault(*verdict);
  const bool reports = known ? std::exchange(without_stacks_, false) : late;
  const bool replaces =
      late && !replaced_ && idle && !verdict->replaceable.empty() && (settings_.fixed_limit || stood >= kReplaceAfter);
  if (!reports && !replaces) return;
  const std::string text = HangText(*verdict, job, stood);
  if (reports) {
    if (!reported_) reported_since_ = since;
    reported_ = verdict;
    effects->push_back(hang_effect::Report{text, verdict->odd});
  }
  if (replaces) {
    replaced_ = true;
    effects->push_back(hang_effect::Replace{verdict->replaceable, text.substr(0, text.find('\n'))});
  }
}

}  // namespace ddprun::launcher
