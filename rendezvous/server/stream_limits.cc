#include "rendezvous/server/stream_limits.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {

absl::Status StreamLimits::Open(Key stream, const std::string& address, SteadyTime now) {
  const bool surplus = waiting_.size() >= limits_.waiting;  // one waiting stream will be ended
  if (streams_.size() >= limits_.streams + (surplus ? 1 : 0)) {
    return absl::ResourceExhaustedError(absl::StrCat("too many streams (", streams_.size(), "); try again later"));
  }
  size_t& of_address = of_address_[address];
  if (of_address >= limits_.streams_per_address + (surplus ? 1 : 0)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many streams from ", address, " (", of_address, "); try again later"));
  }
  ++of_address;
  waiting_.push_back(Waiting{stream, now + limits_.first_message});
  streams_[stream] = Stream{address, std::prev(waiting_.end())};
  return absl::OkStatus();
}

void StreamLimits::Joined(Key stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end() || it->second.place == waiting_.end()) return;
  waiting_.erase(it->second.place);
  it->second.place = waiting_.end();
}

void StreamLimits::Closed(Key stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  Joined(stream);
  const auto of_address = of_address_.find(it->second.address);
  if (--of_address->second == 0) of_address_.erase(of_address);
  streams_.erase(it);
}

StreamLimits::Key StreamLimits::TakeSurplus() {
  if (waiting_.size() <= limits_.waiting) return nullptr;
  Key stream = waiting_.front().stream;
  Joined(stream);
  return stream;
}

std::vector<StreamLimits::Key> StreamLimits::TakeOverdue(SteadyTime now) {
  std::vector<Key> overdue;
  while (!waiting_.empty() && waiting_.front().until <= now) {
    overdue.push_back(waiting_.front().stream);
    Joined(overdue.back());
  }
  return overdue;
}

SteadyTime StreamLimits::NextDeadline() const {
  return waiting_.empty() ? SteadyTime::InfiniteFuture() : waiting_.front().until;
}

}  // namespace ddprun::rendezvous
