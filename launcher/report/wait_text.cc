#include "launcher/report/wait_text.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

std::string WholeSeconds(int64_t seconds) {
  const int64_t hours = seconds / 3600;
  const int64_t minutes = seconds / 60 % 60;
  std::string text;
  if (hours > 0) absl::StrAppend(&text, hours, "h");
  if (hours > 0 || minutes > 0) absl::StrAppend(&text, minutes, "m");
  return absl::StrCat(text, seconds % 60, "s");
}

}  // namespace

std::string RemainingText(absl::Duration remaining) {
  if (remaining == absl::InfiniteDuration()) return "forever";
  remaining = std::max(remaining, absl::ZeroDuration());
  return WholeSeconds(absl::ToInt64Seconds(absl::Ceil(remaining, absl::Seconds(1))));
}

std::string ElapsedText(absl::Duration elapsed) {
  if (elapsed == absl::InfiniteDuration()) return "forever";
  elapsed = std::max(elapsed, absl::ZeroDuration());
  if (elapsed < absl::Seconds(1)) return absl::StrCat(absl::ToInt64Milliseconds(elapsed), "ms");
  if (elapsed < absl::Minutes(1)) {
    const int64_t tenths = elapsed / absl::Milliseconds(100);
    return absl::StrCat(tenths / 10, ".", tenths % 10, "s");
  }
  return WholeSeconds(absl::ToInt64Seconds(elapsed));
}

namespace {

constexpr size_t kMaxNames = 8;  // names per line
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxReasonBytes = 200;

template <typename Names>
std::string NamesText(const Names& names, size_t total) {
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kMaxNames) break;
    shown.push_back(OneLine(name, kMaxNameBytes));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (total > shown.size()) absl::StrAppend(&text, shown.empty() ? "" : " and ", total - shown.size(), " more");
  return text;
}

// Returns " (joined: node-a, node-b; missing: node-c)", or "" if no name is known.
std::string Names(const rendezvous::Waiting& waiting, const std::vector<std::string>& absent) {
  if (waiting.nodes_joined() <= 0 || waiting.hosts().empty()) return "";
  return absl::StrCat(" (joined: ", NamesText(waiting.hosts(), waiting.nodes_joined()),
                      absent.empty() ? "" : "; missing: ", NamesText(absent, absent.size()), ")");
}

std::string Body(const rendezvous::Waiting& waiting, const std::vector<std::string>& absent) {
  const bool endless = ToDuration(waiting.remaining()) == absl::InfiniteDuration();
  if (waiting.spare()) {
    return absl::StrCat("hot spare: the job runs on ", Counted(waiting.nodes_joined(), "node"), Names(waiting, {}),
                        "; standing by to replace a lost node");
  }
  if (waiting.last_call() || waiting.nodes_joined() >= waiting.min_nodes()) {
    const std::string start =
        endless ? ""
                : absl::StrCat("; starting in ", RemainingText(ToDuration(waiting.remaining())), " unless more join");
    return absl::StrCat(Counted(waiting.nodes_joined(), "node"), " joined (min ", waiting.min_nodes(), ", max ",
                        waiting.max_nodes(), ")", start, Names(waiting, absent));
  }
  const int32_t missing = waiting.min_nodes() - waiting.nodes_joined();
  const bool all_known = absent.size() == static_cast<size_t>(missing);
  return absl::StrCat("waiting for ", all_known ? HostsText(absent) : Counted(missing, "more node"), "; ",
                      waiting.nodes_joined(), " of ", waiting.min_nodes() == waiting.max_nodes() ? "" : "at least ",
                      waiting.min_nodes(), " joined", Names(waiting, all_known ? std::vector<std::string>() : absent),
                      endless ? "" : "; timing out in ", endless ? "" : RemainingText(ToDuration(waiting.remaining())));
}

std::string OneMissing(const MissingRank& missing) {
  std::vector<std::string> details;
  if (missing.local_rank) details.push_back(absl::StrCat("local rank ", *missing.local_rank));
  if (missing.pid != 0) details.push_back(absl::StrCat("pid ", missing.pid));
  std::string text = absl::StrCat("rank ", missing.rank);
  if (!missing.host.empty()) absl::StrAppend(&text, " on host ", OneLine(missing.host, kMaxNameBytes));
  if (!details.empty()) absl::StrAppend(&text, " (", absl::StrJoin(details, ", "), ")");
  return text;
}

std::string SeveralMissing(const std::vector<MissingRank>& missing) {
  std::vector<int32_t> ranks;
  std::set<std::string> hosts;
  for (const MissingRank& one : missing) {
    ranks.push_back(one.rank);
    if (!one.host.empty()) hosts.insert(one.host);
  }
  std::string text = RanksText(ranks);
  if (!hosts.empty()) {
    absl::StrAppend(&text, " (on host", hosts.size() == 1 ? " " : "s ", NamesText(hosts, hosts.size()), ")");
  }
  return text;
}

}  // namespace

std::string HostsText(const std::vector<std::string>& hosts) { return NamesText(hosts, hosts.size()); }

std::vector<std::string> AbsentHosts(const rendezvous::Waiting& waiting,
                                     const std::vector<std::string>& expected_hosts) {
  if (static_cast<size_t>(waiting.nodes_joined()) != waiting.hosts().size()) return {};
  std::vector<std::string> absent;
  for (const std::string& host : expected_hosts) {
    if (std::find(waiting.hosts().begin(), waiting.hosts().end(), host) == waiting.hosts().end())
      absent.push_back(host);
  }
  return absent;
}

std::string WaitingText(const rendezvous::Waiting& waiting, const std::vector<std::string>& expected_hosts) {
  const std::string reason = OneLine(waiting.reason(), kMaxReasonBytes);
  return absl::StrCat(reason, reason.empty() ? "" : ": ", Body(waiting, AbsentHosts(waiting, expected_hosts)));
}

std::string MissingRanksText(const std::vector<MissingRank>& missing, const std::vector<int32_t>& waiting_ranks,
                             absl::Duration waited) {
  assert(!missing.empty());
  const bool one = missing.size() == 1;
  std::string text = absl::StrCat(one ? OneMissing(missing.front()) : SeveralMissing(missing), one ? " has" : " have",
                                  " not joined after ", absl::ToInt64Seconds(waited), " s");
  if (waiting_ranks.empty()) return text;
  const bool one_waits = std::set<int32_t>(waiting_ranks.begin(), waiting_ranks.end()).size() == 1;
  absl::StrAppend(&text, "; ", RanksText(waiting_ranks), one_waits ? " is waiting" : " are waiting", " for ",
                  one ? "it" : "them");
  return text;
}

std::string FitLine(absl::string_view text, size_t width) {
  std::string line(text);
  while (line.size() > width) {
    const size_t open = line.rfind(" (");
    const size_t close = open == std::string::npos ? open : line.find(')', open);
    if (close == std::string::npos) break;
    line.erase(open, close + 1 - open);
  }
  if (line.size() <= width) return line;
  const size_t head = (width - 3) / 2;
  return absl::StrCat(Utf8Prefix(line, head), "...", Utf8Suffix(line, width - 3 - head));
}

}  // namespace ddprun::launcher
