#include "tests/launcher/progress/simulated_training.h"

#include <algorithm>
#include <random>
#include <variant>

namespace ddprun::launcher {
namespace {

struct Report {
  absl::Duration at;
  int32_t rank;
  int64_t step;
  std::string phase;
};

class Generator {
 public:
  explicit Generator(const SimulatedTraining& training)
      : training_(training), random_(training.seed), at_(training.ranks), hung_(training.ranks) {}

  std::vector<Report> Reports() {
    for (int64_t step = 0; step < training_.steps; ++step) Step(step);
    std::stable_sort(reports_.begin(), reports_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
    return std::move(reports_);
  }

 private:
  // Half to twice as long, and in one of two hundred cases twice that.
  absl::Duration Vary(absl::Duration usual) {
    std::lognormal_distribution<double> factor(0, 0.25);
    const bool pause = std::uniform_int_distribution<int>(0, 199)(random_) == 0;
    return usual * std::clamp(factor(random_), 0.5, 2.0) * (pause ? 2 : 1);
  }

  void Phase(int32_t rank, int64_t step, const std::string& phase, absl::Duration usual) {
    if (hung_[rank]) return;
    if (training_.phases || phase == "data") reports_.push_back({at_[rank], rank, step, training_.phases ? phase : ""});
    const auto& planted = training_.hang;
    hung_[rank] = planted && planted->rank == rank && planted->step == step && planted->phase == phase;
    at_[rank] += Vary(usual);
  }

  void All(int64_t step, const std::string& phase, absl::Duration usual) {
    for (int32_t rank = 0; rank < training_.ranks; ++rank) Phase(rank, step, phase, usual);
  }

  void Synchronize() {
    if (std::find(hung_.begin(), hung_.end(), true) != hung_.end()) hung_.assign(hung_.size(), true);
    const absl::Duration latest = *std::max_element(at_.begin(), at_.end());
    // The ranks are notified one after the other.
    for (absl::Duration& at : at_) at = latest + absl::Milliseconds(std::uniform_int_distribution<int>(0, 20)(random_));
  }

  void Step(int64_t step) {
    const absl::Duration usual = training_.step;
    All(step, "data", usual / 10);
    All(step, "forward", step == 0 ? absl::Minutes(2) : usual * 3 / 10);
    All(step, "backward", usual / 2);
    Synchronize();
    All(step, "optimizer", usual / 10);
    if (step % training_.checkpoint_every == training_.checkpoint_every - 1) {
      Phase(0, step, "checkpoint", training_.checkpoint);
    }
    if (step % training_.evaluate_every == training_.evaluate_every - 1) All(step, "evaluation", training_.evaluation);
  }

  const SimulatedTraining& training_;
  std::mt19937 random_;
  std::vector<absl::Duration> at_;
  std::vector<bool> hung_;
  std::vector<Report> reports_;
};

}  // namespace

SimulatedTraining::Result SimulatedTraining::Run(ProgressWatch::Settings settings) const {
  const std::vector<Report> reports = Generator(*this).Reports();
  ProgressWatch watch(settings);
  watch.StartRound(ranks, false);
  ProgressEffects effects;
  Result result;
  const SteadyTime start = SteadyTime::FromStart(absl::Hours(1));
  SteadyTime last = start;
  const auto run_deadlines = [&](SteadyTime until) {
    while (watch.NextDeadline() <= until) {
      const SteadyTime at = watch.NextDeadline();
      if (result.hangs.empty()) result.found_after = at - last;
      watch.OnDeadline(at, &effects);
      for (const ProgressEffect& effect : std::exchange(effects, {})) {
        if (const auto* hang = std::get_if<effect::Hang>(&effect)) result.hangs.push_back(*hang);
      }
    }
  };
  for (const Report& report : reports) {
    const SteadyTime now = start + report.at;
    run_deadlines(now);
    watch.OnProgress(report.rank, {report.step, std::nullopt, report.phase, std::nullopt}, now, &effects);
    last = now;
    for (const ProgressEffect& effect : std::exchange(effects, {})) {
      if (const auto* slow = std::get_if<effect::Stragglers>(&effect)) result.stragglers.push_back(*slow);
    }
  }
  if (hang) run_deadlines(last + absl::Hours(1));
  return result;
}

}  // namespace ddprun::launcher
