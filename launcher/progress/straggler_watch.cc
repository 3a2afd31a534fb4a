#include "launcher/progress/straggler_watch.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace ddprun::launcher {
namespace {

// For an even number, the lower of the two middle values: of two ranks, the faster one's.
absl::Duration Median(std::vector<absl::Duration> durations) {
  const auto middle = durations.begin() + (durations.size() - 1) / 2;
  std::nth_element(durations.begin(), middle, durations.end());
  return *middle;
}

}  // namespace

bool IsSynchronizing(absl::string_view phase) {
  const std::string name = absl::AsciiStrToLower(phase);
  for (const char* word : {"backward", "reduce", "barrier", "wait", "sync"}) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

void StragglerWatch::OnPhase(int32_t local_rank, absl::string_view phase, absl::Duration duration) {
  Rank& rank = ranks_[local_rank];
  rank.step += duration;
  rank.synchronized = rank.synchronized || IsSynchronizing(phase);
  if (!rank.synchronized) rank.own += duration;
}

std::vector<Straggler> StragglerWatch::OnStep(int32_t local_rank, bool counts, const std::vector<int32_t>& ranks) {
  Rank& rank = ranks_[local_rank];
  // Without a synchronizing phase it is unknown which part of the step is waiting.
  if (counts && rank.synchronized) {
    if (rank.owns.size() == kSteps) {
      rank.owns.erase(rank.owns.begin());
      rank.steps.erase(rank.steps.begin());
    }
    rank.owns.push_back(rank.own);
    rank.steps.push_back(rank.step);
  }
  rank.own = rank.step = absl::ZeroDuration();
  rank.synchronized = false;
  const auto complete = [&](int32_t other) { return ranks_[other].owns.size() == kSteps; };
  if (ranks.size() < 2 || !std::all_of(ranks.begin(), ranks.end(), complete)) return {};
  return Compare(ranks);
}

std::vector<Straggler> StragglerWatch::Compare(const std::vector<int32_t>& ranks) {
  std::vector<absl::Duration> owns;
  std::vector<absl::Duration> steps;
  for (const int32_t rank : ranks) {
    owns.push_back(Median(ranks_[rank].owns));
    steps.push_back(Median(ranks_[rank].steps));
    ranks_[rank].owns.clear();
    ranks_[rank].steps.clear();
  }
  const absl::Duration others = Median(owns);
  const absl::Duration least = kLeastShareOfStep * Median(steps);
  std::vector<Straggler> stragglers;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (owns[i] < kRatio * others || owns[i] - others < least || others <= absl::ZeroDuration()) continue;
    stragglers.push_back({ranks[i], owns[i], others});
  }
  std::sort(stragglers.begin(), stragglers.end(), [](const auto& a, const auto& b) { return a.own > b.own; });
  return stragglers;
}

}  // namespace ddprun::launcher
