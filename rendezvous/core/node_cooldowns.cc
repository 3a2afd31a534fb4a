#include "rendezvous/core/node_cooldowns.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ddprun::rendezvous {

NodeCooldowns::NodeCooldowns(absl::Duration first, const JobRecord& record, SteadyTime now)
    : first_(first), failing_node_(record.failing_node()), in_a_row_(record.failing_rounds()) {
  for (const CooldownRecord& node : record.cooldowns()) {
    Entry& entry = entries_.emplace_back(Entry{node.node_id(), node.times()});
    if (!node.has_remaining()) continue;
    entry.until = now + ToDuration(node.remaining());
    ++active_;
  }
}

namespace {

// A record may contain any number.
int32_t OneMore(int32_t count) { return std::min(count, INT32_MAX - 1) + 1; }

}  // namespace

void NodeCooldowns::OnFirstCause(absl::string_view node_id, SteadyTime now) {
  if (first_ <= absl::ZeroDuration()) return;
  in_a_row_ = node_id == failing_node_ ? OneMore(in_a_row_) : 1;
  failing_node_ = std::string(node_id);
  if (in_a_row_ < kRoundsInARow) return;
  Entry* entry = FindOrAdd(node_id);
  entry->stuck = false;
  Begin(entry, now);
}

void NodeCooldowns::OnStuckWorker(absl::string_view node_id, SteadyTime now) {
  if (first_ <= absl::ZeroDuration()) return;
  Entry* entry = FindOrAdd(node_id);
  // The worker may be reported as in uninterruptible sleep, then as alive after SIGKILL.
  if (std::exchange(entry->stuck, true) && entry->until) {
    entry->until = now + LengthAfter(entry->times);
  } else {
    Begin(entry, now);
  }
}

void NodeCooldowns::Begin(Entry* entry, SteadyTime now) {
  entry->times = OneMore(entry->times);
  if (!entry->until) ++active_;
  entry->until = now + LengthAfter(entry->times);
}

const NodeCooldowns::Entry* NodeCooldowns::Find(absl::string_view node_id) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.node_id == node_id; });
  return found == entries_.end() ? nullptr : &*found;
}

NodeCooldowns::Entry* NodeCooldowns::FindOrAdd(absl::string_view node_id) {
  for (Entry& entry : entries_) {
    if (entry.node_id == node_id) return &entry;
  }
  if (entries_.size() == kMaxNodes) {
    if (entries_.front().until) --active_;
    entries_.erase(entries_.begin());
  }
  return &entries_.emplace_back(Entry{std::string(node_id)});
}

bool NodeCooldowns::IsActive(absl::string_view node_id) const {
  const Entry* entry = Find(node_id);
  return entry != nullptr && entry->until.has_value();
}

bool NodeCooldowns::IsForStuckWorker(absl::string_view node_id) const {
  const Entry* entry = Find(node_id);
  return entry != nullptr && entry->stuck;
}

absl::Duration NodeCooldowns::Length(absl::string_view node_id) const {
  const Entry* entry = Find(node_id);
  return entry == nullptr ? absl::ZeroDuration() : LengthAfter(entry->times);
}

absl::Duration NodeCooldowns::LengthAfter(int32_t times) const {
  absl::Duration length = first_;
  if (length <= absl::ZeroDuration()) return length;
  for (int32_t i = 1; i < times && length < kLongest; ++i) length *= 2;
  return std::min(length, std::max(first_, kLongest));
}

bool NodeCooldowns::Expire(SteadyTime now) {
  const size_t before = active_;
  for (Entry& entry : entries_) {
    if (!entry.until || *entry.until > now) continue;
    entry.until.reset();
    --active_;
  }
  return active_ < before;
}

SteadyTime NodeCooldowns::NextEnd() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  if (active_ == 0) return next;
  for (const Entry& entry : entries_) next = std::min(next, entry.until.value_or(next));
  return next;
}

std::vector<std::string> NodeCooldowns::Nodes() const {
  std::vector<const Entry*> active;
  for (const Entry& entry : entries_) {
    if (entry.until) active.push_back(&entry);
  }
  std::stable_sort(active.begin(), active.end(), [](const Entry* a, const Entry* b) { return *a->until < *b->until; });
  std::vector<std::string> ids;
  ids.reserve(active.size());
  for (const Entry* entry : active) ids.push_back(entry->node_id);
  return ids;
}

void NodeCooldowns::Record(SteadyTime now, JobRecord* record) const {
  for (const Entry& entry : entries_) {
    CooldownRecord* const node = record->add_cooldowns();
    node->set_node_id(entry.node_id);
    node->set_times(entry.times);
    if (entry.until) *node->mutable_remaining() = FromDuration(std::max(absl::ZeroDuration(), *entry.until - now));
  }
  record->set_failing_node(failing_node_);
  record->set_failing_rounds(in_a_row_);
}

}  // namespace ddprun::rendezvous
