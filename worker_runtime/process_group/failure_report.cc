#include "worker_runtime/process_group/failure_report.h"

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

using Kind = FailureReport::Kind;

constexpr std::array<std::pair<Kind, absl::string_view>, 4> kKindNames = {
    {{Kind::kTimeout, "timeout"}, {Kind::kLost, "lost"}, {Kind::kAborted, "aborted"}, {Kind::kLeft, "left"}}};

FailureCause CauseAt(int rank, const FailureReports& reports) {
  const auto found = reports.find(rank);
  if (found == reports.end()) return {.rank = rank};
  return {.rank = rank, .reported = found->second};
}

// Cause according to other ranks, for a rank that does not know whose connection broke.
FailureCause AnyCause(int rank, const FailureReports& reports) {
  for (const Kind kind : {Kind::kAborted, Kind::kLeft, Kind::kTimeout}) {
    for (const auto& [other, report] : reports) {
      if (other != rank && report.kind == kind) return CauseAt(other, reports);
    }
  }
  for (const auto& [other, report] : reports) {
    if (report.lost.has_value() && !reports.contains(*report.lost)) return CauseAt(*report.lost, reports);
  }
  return {};
}

std::vector<int> Silent(const Peers& peers, int rank, const FailureReports& reports) {
  std::vector<int> silent;
  for (int other = 0; other < peers.size(); ++other) {
    if (other != rank && !reports.contains(other)) silent.push_back(other);
  }
  return silent;
}

// Operations of the other ranks that differ from this rank's: "rank 1 (...) is in broadcast (collective #2)".
std::string Differences(const Peers& peers, int rank, const FailureReport& own, const FailureReports& reports) {
  std::map<std::string, std::vector<int>> at;
  for (const auto& [other, report] : reports) {
    if (other != rank && report.Operation() != own.Operation()) at[report.Operation()].push_back(other);
  }
  std::vector<std::string> parts;
  for (const auto& [operation, ranks] : at) {
    parts.push_back(absl::StrCat(peers.Names(ranks), ranks.size() == 1 ? " is in " : " are in ", operation));
  }
  return absl::StrJoin(parts, ", ");
}

std::string ExplainTimeout(const Peers& peers, int rank, const FailureReport& own, const FailureReports& reports) {
  const std::vector<int> silent = Silent(peers, rank, reports);
  const std::string differences = Differences(peers, rank, own, reports);
  if (!silent.empty()) {
    const bool one = silent.size() == 1;
    return absl::StrCat(peers.Names(silent), " did not enter this collective or ", one ? "is" : "are",
                        " not responding; check whether ", one ? "it is" : "they are", " slow, stuck, stopped or dead",
                        differences.empty() ? "" : absl::StrCat("; of the others, ", differences));
  }
  if (!differences.empty()) {
    return absl::StrCat("collectives do not match: ", differences, ", but this rank is in ", own.Operation(),
                        "; all ranks must call the same collectives in the same order");
  }
  return "all ranks entered this collective, some too late; increase the timeout if ranks, hosts or network are slow";
}

std::string Text(const Peers& peers, int rank, absl::Duration timeout, const FailureReport& own,
                 const FailureReports& reports, const FailureCause& cause) {
  const std::string because = own.detail.empty() ? "" : absl::StrCat(" [", own.detail, "]");
  if (IsTimeout(cause)) {
    const bool here = own.kind == Kind::kTimeout;
    const std::string what =
        here ? absl::StrCat(": timed out after ", absl::FormatDuration(timeout), ": ")
             : absl::StrCat(": ", peers.Name(*cause.rank), " timed out in ", cause.reported->Operation(), ": ");
    return absl::StrCat(what, ExplainTimeout(peers, rank, own, reports));
  }
  if (!cause.rank.has_value()) {
    const std::vector<int> silent = Silent(peers, rank, reports);
    const std::string suspects =
        silent.empty() ? "" : absl::StrCat("; no report from ", peers.Names(silent), ": dead or stuck?");
    return absl::StrCat(": lost connection to another rank", because, suspects);
  }
  const std::string name = peers.Name(*cause.rank);
  if (!cause.reported.has_value()) {
    return absl::StrCat(": ", name,
                        own.kind == Kind::kTimeout ? " is not responding; check whether it is stuck, stopped or dead"
                                                   : " exited or was killed; check its output",
                        because);
  }
  if (cause.reported->kind == Kind::kAborted) {
    return absl::StrCat(": ", name, " aborted the group: ", cause.reported->detail);
  }
  if (cause.reported->kind == Kind::kLeft) {
    return absl::StrCat(": ", name, " destroyed the group without calling Shutdown");
  }
  return absl::StrCat(": lost connection to ", name, because);
}

}  // namespace

std::string FailureReport::Operation() const {
  return sequence == 0 ? operation : absl::StrCat(operation, " (collective #", sequence, ")");
}

std::string FailureReport::Encode() const {
  absl::string_view name;
  for (const auto& [known, text] : kKindNames) {
    if (known == kind) name = text;
  }
  return absl::StrJoin({std::string(name), operation, absl::StrCat(sequence), absl::StrCat(lost.value_or(-1)), detail},
                       "\t");
}

std::optional<FailureReport> FailureReport::Decode(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, absl::MaxSplits('\t', 4));
  FailureReport report;
  int lost = -1;
  if (fields.size() != 5 || !absl::SimpleAtoi(fields[2], &report.sequence) || !absl::SimpleAtoi(fields[3], &lost)) {
    return std::nullopt;
  }
  report.operation = std::string(fields[1]);
  report.detail = std::string(fields[4]);
  if (lost >= 0) report.lost = lost;
  for (const auto& [kind, name] : kKindNames) {
    if (name != fields[0]) continue;
    report.kind = kind;
    return report;
  }
  return std::nullopt;
}

std::string EncodeMessage(int rank, const FailureReport& report) {
  return absl::StrCat(rank, "\t", absl::StrReplaceAll(report.Encode(), {{"\n", " "}}), "\n");
}

FailureReports DecodeLines(absl::string_view text) {
  FailureReports reports;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('\t', 1));
    int rank = -1;
    std::optional<FailureReport> report = FailureReport::Decode(parts.second);
    if (absl::SimpleAtoi(parts.first, &rank) && report.has_value()) reports.emplace(rank, *std::move(report));
  }
  return reports;
}

FailureCause FindCause(int rank, const FailureReport& own, const FailureReports& reports) {
  if (own.kind != Kind::kLost && !own.lost.has_value()) {
    const FailureCause cause = AnyCause(rank, reports);
    const bool ended = cause.reported.has_value() && cause.reported->kind != Kind::kTimeout;
    return ended ? cause : FailureCause{.rank = rank, .reported = own};
  }
  if (!own.lost.has_value()) return AnyCause(rank, reports);
  std::set<int> seen = {rank};
  FailureCause cause = CauseAt(*own.lost, reports);
  while (cause.reported.has_value() && cause.reported->kind == Kind::kLost && seen.insert(*cause.rank).second) {
    if (!cause.reported->lost.has_value() || seen.contains(*cause.reported->lost)) return AnyCause(rank, reports);
    cause = CauseAt(*cause.reported->lost, reports);
  }
  return cause;
}

bool IsTimeout(const FailureCause& cause) {
  return cause.reported.has_value() && cause.reported->kind == Kind::kTimeout;
}

absl::Status ExplainFailure(const Peers& peers, int rank, absl::Duration timeout, const FailureReport& own,
                            const FailureReports& reports) {
  const FailureCause cause = FindCause(rank, own, reports);
  const std::string text =
      absl::StrCat("rank ", rank, ": ", own.Operation(), Text(peers, rank, timeout, own, reports, cause));
  return IsTimeout(cause) ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

}  // namespace ddprun
