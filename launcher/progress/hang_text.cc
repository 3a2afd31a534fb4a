#include "launcher/progress/hang_text.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "launcher/report/duration_text.h"

namespace ddprun::launcher {
namespace {

struct Verb {
  const char* one;
  const char* several;
};

std::string RanksHave(const LocalRanks& local_ranks, int32_t base_rank, Verb verb) {
  return absl::StrCat(RanksText(local_ranks, base_rank), " ", local_ranks.size() == 1 ? verb.one : verb.several);
}

LocalRanks RanksOf(const std::vector<WorkerStanding>& standings) {
  LocalRanks ranks;
  for (const WorkerStanding& standing : standings) ranks.push_back(standing.local_rank);
  return ranks;
}

// "(usually 300ms, limit 1s)"
std::string LimitText(const WorkerStanding& standing) {
  const std::string usual =
      standing.usual > absl::ZeroDuration() ? absl::StrCat("usually ", ElapsedText(standing.usual), ", ") : "";
  return absl::StrCat("(", usual, "limit ", ElapsedText(standing.limit), ")");
}

}  // namespace

std::string StandingText(const WorkerStanding& standing) {
  const std::string phase = OneLine(standing.phase, worker_contract::kMaxPhaseBytes);
  return absl::StrCat(phase.empty() ? "" : absl::StrCat("phase ", phase, " of "), "step ", standing.step);
}

std::string HangText(const effect::Hang& hang, int32_t base_rank) {
  // The last rank to arrive determines how long all of them have been there.
  const WorkerStanding& last = *std::min_element(hang.behind.begin(), hang.behind.end(),
                                                 [](const auto& a, const auto& b) { return a.stood < b.stood; });
  std::string text = absl::StrCat(RanksHave(RanksOf(hang.behind), base_rank, {"has been in", "have been in"}), " ",
                                  StandingText(last), " for ", ElapsedText(last.stood), " ", LimitText(last));
  const bool alone = hang.behind.size() == 1;
  if (hang.elsewhere) {
    absl::StrAppend(&text, ": ", alone ? "it may wait" : "they wait for each other or",
                    " for another node (see its launcher's log)");
  } else if (!alone && hang.waiting.empty()) {
    absl::StrAppend(&text, ": all ranks of this node that report their progress");
  }
  std::map<std::string, LocalRanks> waiting;
  for (const WorkerStanding& standing : hang.waiting) waiting[StandingText(standing)].push_back(standing.local_rank);
  for (const auto& [where, ranks] : waiting) {
    absl::StrAppend(&text, "; ", RanksHave(ranks, base_rank, {"waits in", "wait in"}), " ", where);
  }
  if (!hang.silent.empty()) {
    absl::StrAppend(&text, "; ", RanksHave(hang.silent, base_rank, {"has", "have"}), " not reported any progress");
  }
  if (!hang.finished.empty()) {
    absl::StrAppend(&text, "; ", RanksHave(hang.finished, base_rank, {"has", "have"}), " finished the training");
  }
  if (!hang.ended.empty()) absl::StrAppend(&text, "; ", RanksHave(hang.ended, base_rank, {"has", "have"}), " ended");
  return text;
}

std::string HangFailureText(const WorkerStanding& standing) {
  return absl::StrCat("hung in ", StandingText(standing), " for ", ElapsedText(standing.stood), " ",
                      LimitText(standing), "; killed (--on-hang=restart)");
}

std::string HangEndedText(const effect::HangEnded& went_on, int32_t base_rank) {
  return absl::StrCat("rank ", base_rank + went_on.stood.local_rank, " continued after ",
                      ElapsedText(went_on.stood.stood), " in ", StandingText(went_on.stood));
}

std::string NotExitedText(const effect::NotExited& not_exited, int32_t base_rank, int64_t pid) {
  const bool exiting = not_exited.killed_after < absl::InfiniteDuration();
  std::string text = absl::StrCat("rank ", base_rank + not_exited.local_rank, " (pid ", pid, ") has ",
                                  exiting ? "run to the end of its program" : "finished its training",
                                  " and has not exited for ", ElapsedText(not_exited.stood));
  if (not_exited.kill) return absl::StrCat(text, ": killed; it counts as finished");
  if (!exiting) return text;
  return absl::StrCat(text, "; it counts as finished, and is killed after ", ElapsedText(not_exited.killed_after),
                      " if it is idle");
}

std::string StragglersText(const effect::Stragglers& stragglers, int32_t base_rank) {
  return absl::StrJoin(stragglers.ranks, "; ", [&](std::string* out, const Straggler& slow) {
    absl::StrAppendFormat(out,
                          "rank %d is slow: it computes %s of a step before the ranks wait for each other, %.1f times "
                          "the median of this node's ranks (%s)",
                          base_rank + slow.local_rank, ElapsedText(slow.own), slow.ratio(), ElapsedText(slow.others));
  });
}

}  // namespace ddprun::launcher
