#include "launcher/progress/store_wait_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kLongestPause = absl::Minutes(30);
constexpr size_t kMaxKeyBytes = 120;

// Describes the waits for one key: "ranks 0-2 have waited 45.0s for key 'barrier' of the store; rank 3 has not
// requested it".
std::string KeyText(const std::vector<StoreWait>& waits, absl::Duration waited, int world_size) {
  std::set<int32_t> known;
  for (const StoreWait& wait : waits) {
    if (wait.rank) known.insert(*wait.rank);
  }
  const bool one = waits.size() == 1;
  std::string text =
      known.empty() ? Counted(static_cast<int64_t>(waits.size()), "client") : RanksText({known.begin(), known.end()});
  absl::StrAppend(&text, one ? " has" : " have", " waited ", ElapsedText(waited), " for key '",
                  OneLine(waits[0].key, kMaxKeyBytes), "' of the store");
  if (waits[0].on_rank) absl::StrAppend(&text, ", which rank ", *waits[0].on_rank, " sets");
  if (known.empty()) return text;
  std::vector<int32_t> others;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    if (known.count(rank) == 0) others.push_back(rank);
  }
  if (others.empty()) return text;
  return absl::StrCat(text, "; ", RanksText(others), others.size() == 1 ? " has" : " have", " not requested it");
}

}  // namespace

void StoreWaitWatch::StartRound(int world_size) {
  *this = StoreWaitWatch();
  world_size_ = world_size;
}

void StoreWaitWatch::OnWaits(SteadyTime now) {
  if (world_size_ > 0 && !look_.running()) look_.Set(now + kInterval);
}

std::string StoreWaitWatch::OnDeadline(const std::vector<StoreWait>& waits, SteadyTime now) {
  if (!look_.Take(now)) return "";
  std::map<uint64_t, SteadyTime> since;
  std::map<std::string, std::vector<StoreWait>> by_key;
  std::string longest;  // the key of the oldest wait
  SteadyTime oldest = now;
  for (const StoreWait& wait : waits) {
    const auto before = since_.find(wait.number);
    const SteadyTime first = before == since_.end() ? now : before->second;
    since[wait.number] = first;
    by_key[wait.key].push_back(wait);
    if (first < oldest) {
      oldest = first;
      longest = wait.key;
    }
  }
  since_ = std::move(since);
  if (!waits.empty()) look_.Set(now + kInterval);
  if (now - oldest < kLong) {
    pause_ = absl::Minutes(1);
    next_report_ = SteadyTime::InfinitePast();
    return "";
  }
  if (now < next_report_) return "";
  next_report_ = now + std::exchange(pause_, std::min(2 * pause_, kLongestPause));
  const std::string text = KeyText(by_key[longest], now - oldest, world_size_);
  return by_key.size() == 1
             ? text
             : absl::StrCat(text, "; others wait for ", Counted(static_cast<int64_t>(by_key.size()) - 1, "more key"));
}

}  // namespace ddprun::launcher
