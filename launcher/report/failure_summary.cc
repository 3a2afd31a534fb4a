#include "launcher/report/failure_summary.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/process.h"
#include "base/text.h"
#include "launcher/report/explain_end.h"
#include "launcher/report/first_cause.h"
#include "launcher/report/wait_text.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::launcher {
namespace {

using rendezvous::WorkerFailure;

constexpr size_t kFrameWidth = 60;  // torchrun's
constexpr size_t kMaxWidth = 80;
constexpr size_t kMaxTextBytes = 1000;
constexpr size_t kMaxOthers = 16;
constexpr char kContinuation[] = "              ";  // aligns with a field's value

// Breaks `text` between words so that lines stay within kMaxWidth; the first line starts at column `used`.
std::string Wrap(absl::string_view text, size_t used, absl::string_view indent) {
  std::string out;
  size_t column = used;
  bool line_empty = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line_empty && column + 1 + word.size() > kMaxWidth) {
      absl::StrAppend(&out, "\n", indent);
      column = indent.size();
      line_empty = true;
    }
    if (!line_empty) absl::StrAppend(&out, " ");
    absl::StrAppend(&out, word);
    column += word.size() + (line_empty ? 0 : 1);
    line_empty = false;
  }
  return out;
}

void AppendField(absl::string_view name, absl::string_view value, std::string* out) {
  absl::StrAppendFormat(out, "  %-10s: %s\n", name, value);
}

void AppendWrapped(absl::string_view name, absl::string_view value, std::string* out) {
  AppendField(name, Wrap(OneLine(value, kMaxTextBytes), sizeof(kContinuation) - 1, kContinuation), out);
}

// torchrun's notation: a signal is its negative number.
std::string ExitCodeText(const WorkerFailure& failure) {
  if (rendezvous::IsStuckInKernel(failure)) return absl::StrCat("<N/A> (pid: ", failure.pid(), ")");
  std::string text = absl::StrCat(failure.signal() != 0 ? -failure.signal() : rendezvous::ExitStatus(failure));
  absl::StrAppend(&text, " (pid: ", failure.pid() != 0 ? absl::StrCat(failure.pid()) : "none", ")");
  if (failure.signal() != 0) absl::StrAppend(&text, " (", SignalName(failure.signal()), ")");
  return text;
}

// torchrun's sentence for a signal, else the worker's or the launcher's message.
std::string MessageText(const WorkerFailure& failure) {
  std::string text = OneLine(failure.message(), kMaxTextBytes);
  if (rendezvous::IsStuckInKernel(failure)) return absl::StrCat("it ", rendezvous::DescribeEnd(failure), ": ", text);
  if ((text.empty() || text == kCoreDumped) && failure.signal() != 0) {
    text = absl::StrCat("Signal ", failure.signal(), " (", SignalName(failure.signal()), ") received by PID ",
                        failure.pid(), text.empty() ? "" : "; ", text);
  }
  if (text.empty() && failure.pid() != 0) {
    text = failure.restartable() ? "no error file; see the worker's output"
                                 : absl::StrCat("it ", rendezvous::DescribeEnd(failure));
  }
  if (text.empty()) text = absl::StrCat(rendezvous::DescribeWho(failure), " ", rendezvous::DescribeEnd(failure));
  if (failure.oom_killed() && !absl::StrContains(text, "OOM")) {
    absl::StrAppend(&text, "; OOM-killed");
  }
  return text;
}

void AppendTraceback(const WorkerFailure& failure, std::string* out) {
  if (failure.traceback().empty()) return;
  const std::string clean = CutMiddle(CleanText(failure.traceback()), rendezvous::kMaxTracebackBytes);
  const std::vector<absl::string_view> lines = absl::StrSplit(absl::StripTrailingAsciiWhitespace(clean), '\n');
  AppendField("traceback", lines.front(), out);
  for (size_t i = 1; i < lines.size(); ++i) absl::StrAppend(out, "    ", lines[i], "\n");
}

void AppendFailure(size_t index, const WorkerFailure& failure, bool whole, absl::TimeZone zone, std::string* out) {
  absl::StrAppend(out, "[", index, "]:\n");
  // A lost node is reported by the server, which has no wall-clock time for it.
  if (ToTime(failure.at()) != absl::Time())
    AppendField("time", absl::FormatTime("%Y-%m-%d_%H:%M:%S", ToTime(failure.at()), zone), out);
  AppendField("host", failure.host().empty() ? "<unknown>" : OneLine(failure.host(), kMaxTextBytes), out);
  if (failure.rank() >= 0) {
    AppendField("rank", absl::StrFormat("%d (local_rank: %d)", failure.rank(), failure.local_rank()), out);
    AppendField("exitcode", ExitCodeText(failure), out);
    if (failure.pid() != 0) AppendField("ran for", ElapsedText(ToDuration(failure.ran_for())), out);
    AppendField("error_file", failure.error_file().empty() ? "<N/A>" : OneLine(failure.error_file(), 4096), out);
  }
  if (!failure.progress().empty()) AppendWrapped("progress", failure.progress(), out);
  AppendWrapped("message", MessageText(failure), out);
  if (whole) AppendTraceback(failure, out);
}

bool IsFirstCause(const WorkerFailure& failure, const rendezvous::Verdict& verdict) {
  const std::optional<WorkerFailure> cause = rendezvous::FirstCause(verdict);
  return cause && cause->rank() >= 0 && failure.rank() == cause->rank() && failure.pid() == cause->pid() &&
         failure.host() == cause->host();
}

void AppendOthers(const hosts::v1::JobFailure& job, absl::TimeZone time_zone, absl::string_view thin,
                  std::string* out) {
  size_t shown = 0;
  size_t left_out = 0;
  const bool has_cause = Classify({job.verdict().first_cause()}) < FailureClass::kPeerError;
  for (const WorkerFailure& failure : job.others()) {
    if (IsFirstCause(failure, job.verdict())) continue;
    if (shown == kMaxOthers) {
      ++left_out;
      continue;
    }
    if (shown == 0) absl::StrAppend(out, thin, "Other Failures:\n");
    AppendFailure(++shown, failure, /*whole=*/false, time_zone, out);
    if (has_cause && Classify({failure}) == FailureClass::kPeerError)
      AppendField("cause", "consequence: lost its peers", out);
  }
  if (left_out > 0) absl::StrAppend(out, "and ", left_out, " more\n");
}

}  // namespace

std::string FailureSummary(const hosts::v1::JobFailure& failure, absl::TimeZone time_zone) {
  const rendezvous::Verdict& verdict = failure.verdict();
  if (verdict.succeeded()) return "";
  const std::string thick = std::string(kFrameWidth, '=') + "\n";
  const std::string thin = std::string(kFrameWidth, '-') + "\n";
  std::string out = absl::StrCat(thick, OneLine(failure.entrypoint(), kMaxTextBytes), " FAILED\n");
  if (!verdict.reason().empty()) absl::StrAppend(&out, Wrap(OneLine(verdict.reason(), kMaxTextBytes), 0, ""), "\n");
  if (!failure.hang().empty()) {
    absl::StrAppend(&out, Wrap(absl::StrCat("Before the end: ", OneLine(failure.hang(), kMaxTextBytes)), 0, ""), "\n");
  }
  const bool worker_failed = verdict.has_first_cause() && verdict.first_cause().rank() >= 0;
  if (worker_failed && !failure.interpreter().empty()) {
    absl::StrAppend(&out, "Python: ", OneLine(failure.interpreter(), kMaxTextBytes), "\n");
  }
  if (!failure.hint().empty()) {
    absl::StrAppend(&out, Wrap(absl::StrCat("Hint: ", OneLine(failure.hint(), kMaxTextBytes)), 0, ""), "\n");
  }
  if (verdict.has_first_cause()) {
    absl::StrAppend(&out, thin, "Root Cause (first observed failure):\n");
    AppendFailure(0, verdict.first_cause(), /*whole=*/true, time_zone, &out);
  }
  AppendOthers(failure, time_zone, thin, &out);
  absl::StrAppend(&out, thick);
  return out;
}

std::string FailureSummary(const std::vector<HostFailure>& hosts, absl::TimeZone time_zone) {
  struct Group {
    std::vector<std::string> names;
    hosts::v1::JobFailure failure;
  };
  std::vector<Group> groups;
  for (const auto& [name, host, failure] : hosts) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.failure.verdict() == failure.verdict(); });
    if (group == groups.end()) {
      groups.push_back({{name}, failure});
      continue;
    }
    group->names.push_back(name);
    group->failure.mutable_others()->MergeFrom(failure.others());
    if (group->failure.hang().empty()) group->failure.set_hang(failure.hang());
    // The advice of the host that failed is the best.
    const bool failed_here = host == failure.verdict().first_cause().host();
    if (failed_here) group->failure.set_interpreter(failure.interpreter());
    if (failed_here || group->failure.hint().empty()) group->failure.set_hint(failure.hint());
  }
  std::string out;
  for (const Group& group : groups) {
    if (groups.size() > 1) absl::StrAppend(&out, absl::StrJoin(group.names, ", "), ":\n");
    absl::StrAppend(&out, FailureSummary(group.failure, time_zone));
  }
  return out;
}

}  // namespace ddprun::launcher
