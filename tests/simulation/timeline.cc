#include "tests/simulation/timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::testing {
namespace {

constexpr size_t kMostHistory = 400;

}  // namespace

void Timeline::At(SteadyTime time, std::function<void()> what) {
  events_.push(Event{std::max(time, now_), ++order_, std::move(what)});
}

bool Timeline::RunOne() {
  if (NextEvent() > now_) return false;
  const std::function<void()> what = events_.top().what;
  events_.pop();
  what();
  return true;
}

absl::Duration Timeline::Random(absl::Duration most) {
  if (chosen()) return absl::ZeroDuration();
  return most * std::uniform_real_distribution<double>(0, 1)(random_);
}

void Timeline::Note(const std::string& text) {
  if (!keeps_notes_) return;
  history_.push_back(absl::StrCat(absl::FormatDuration(now_.since_start() - absl::Seconds(1000)), " ", text));
  if (history_.size() > kMostHistory) history_.pop_front();
}

std::string Timeline::history() const { return absl::StrJoin(history_, "\n"); }

}  // namespace ddprun::testing
