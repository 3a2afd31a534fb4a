#include "worker_runtime/elastic/core/shared_decisions.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// Hysteresis: once phases are not reported, they are reported again only below this fraction of the limit, so that a
// training whose rate is close to the limit does not switch back and forth.
constexpr double kFewer = 0.8;

// The finalizer of SplitMix64 (Steele et al., Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

}  // namespace

void AgreementSchedule::StartRound(int64_t step) {
  last_ = next_ = step;
  every_ = report_every_ = 1;
  reports_phases_ = true;
}

void AgreementSchedule::Agreed(int64_t step, absl::Duration training, int64_t phases) {
  const int64_t steps = step - last_;
  last_ = step;
  if (steps > 0 && training > absl::ZeroDuration()) {
    // Rounded up, so that the ranks do not agree more often than that.
    const absl::Duration one = std::max(training / steps, absl::Nanoseconds(1));
    const int64_t wanted = std::min(absl::ToInt64Nanoseconds(interval_), kMostSteps * absl::ToInt64Nanoseconds(one));
    const int64_t enough = (wanted + absl::ToInt64Nanoseconds(one) - 1) / absl::ToInt64Nanoseconds(one);
    every_ = std::clamp<int64_t>(enough, 1, std::min(kMostSteps, 2 * every_));
    const double seconds = absl::ToDoubleSeconds(training);
    const double most = static_cast<double>(kMostReports) * (reports_phases_ ? 1 : kFewer);
    reports_phases_ = static_cast<double>(phases) <= most * seconds;
    report_every_ = 1;
    const auto count = static_cast<double>(steps);
    while (count > static_cast<double>(kMostReports * report_every_) * seconds && report_every_ < kMostSteps) {
      report_every_ *= 2;
    }
  }
  next_ = step + every_;
}

std::optional<int> ChooseStateSource(absl::Span<const std::optional<CommittedPoint>> committed) {
  std::optional<int> source;
  for (size_t rank = 0; rank < committed.size(); ++rank) {
    if (!committed[rank].has_value()) continue;
    if (!source.has_value() || *committed[rank] > *committed[*source]) source = static_cast<int>(rank);
  }
  return source;
}

std::string BucketLayoutText(const BucketLayout& layout) {
  return absl::StrJoin(layout, ";", [](std::string* out, const std::vector<size_t>& bucket) {
    absl::StrAppend(out, absl::StrJoin(bucket, " "));
  });
}

absl::StatusOr<BucketLayout> FromBucketLayoutText(absl::string_view text) {
  BucketLayout layout;
  for (const absl::string_view bucket : absl::StrSplit(text, ';')) {
    layout.emplace_back();
    for (const absl::string_view number : absl::StrSplit(bucket, ' ')) {
      size_t index = 0;
      if (!absl::SimpleAtoi(number, &index)) return absl::DataLossError("not a layout of buckets");
      layout.back().push_back(index);
    }
  }
  return layout;
}

uint64_t StepSeed(uint64_t seed, int64_t step, int rank) {
  uint64_t mixed = Mix(seed + kGamma);
  mixed = Mix(mixed + kGamma * (static_cast<uint64_t>(step) + 1));
  return Mix(mixed + kGamma * (static_cast<uint64_t>(rank) + 1));
}

}  // namespace ddprun
