#include "rendezvous/core/job_history.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/text.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::rendezvous {
namespace {

bool IsComingOrGoing(const Event& event) {
  const std::string& kind = event.kind();
  return kind == event_kind::kNodeJoined || kind == event_kind::kNodeLost || kind == event_kind::kNodeLeft ||
         kind == event_kind::kNodeReturned;
}

void CutTexts(Event* event) {
  if (event->detail().size() > JobHistory::kMaxText) event->set_detail(OneLine(event->detail(), JobHistory::kMaxText));
  if (event->has_failure()) ShortenTexts(JobHistory::kMaxText, event->mutable_failure());
}

}  // namespace

JobHistory::JobHistory(std::vector<Event> events) {
  for (Event& event : events) Add(std::move(event));
}

void JobHistory::Add(Event event) {
  CutTexts(&event);
  const bool of_node = IsComingOrGoing(event);
  events_.push_back(std::move(event));
  const auto counts = [&](const Event& e) {
    return e.kind() != event_kind::kJobCreated && IsComingOrGoing(e) == of_node;
  };
  const auto count = std::count_if(events_.begin(), events_.end(), counts);
  if (static_cast<size_t>(count) <= (of_node ? kMaxNodeEvents : kMaxEvents)) return;
  events_.erase(std::find_if(events_.begin(), events_.end(), counts));
}

std::vector<Event> Timeline(const std::vector<JobRecord>& records) {
  struct Placed {
    absl::Time at;
    const Event* event;
  };
  std::vector<Placed> placed;
  for (const JobRecord& record : records) {
    absl::Time at = absl::InfinitePast();
    for (const Event& event : record.events()) {
      at = std::max(at, ToTime(event.time()));
      placed.push_back({at, &event});
    }
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.at < b.at; });
  std::vector<Event> events;
  events.reserve(placed.size());
  for (const Placed& one : placed) events.push_back(*one.event);
  return events;
}

}  // namespace ddprun::rendezvous
