#include "rendezvous/core/phrases.h"

#include <signal.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/process.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxMessageBytes = 300;
constexpr size_t kMaxHostBytes = 253;

std::string Host(const WorkerFailure& failure) {
  return failure.host().empty() ? "an unknown host" : OneLine(failure.host(), kMaxHostBytes);
}

absl::string_view LimitOf(int signal) {
  switch (signal) {
    case SIGXCPU: return " (limit of CPU time, ulimit -t)";
    case SIGXFSZ: return " (limit of file size, ulimit -f)";
    default: return "";
  }
}

// Returns what an exit code means in a shell, e.g. " (in shells: SIGKILL)" for 137; empty if it has no such meaning.
std::string MeaningInShells(int exit_code) {
  if (exit_code == kExitCannotExecute) return " (in shells: can't execute a command)";
  if (exit_code == kExitNotFound) return " (in shells: command not found)";
  const int signal = exit_code - worker_contract::ExitCodeOfSignal(0);
  return signal > 0 && signal <= SIGSYS ? absl::StrCat(" (in shells: ", SignalName(signal), ")") : "";
}

}  // namespace

std::string DescribeEnd(const WorkerFailure& failure) {
  if (failure.rank() < 0) return "was lost";
  if (IsStuckInKernel(failure)) return "is stuck in the kernel";
  if (failure.signal() != 0) {
    return absl::StrCat("was killed by ", SignalName(failure.signal()),
                        failure.oom_killed() ? " (OOM-killed)" : LimitOf(failure.signal()));
  }
  const bool never_ran = failure.pid() == 0 || !failure.restartable();
  if (never_ran && failure.exit_code() == kExitNotFound) return "was not started: no such program";
  if (never_ran && failure.exit_code() == kExitCannotExecute) return "was not started: cannot execute the program";
  if (failure.pid() == 0) return "was not started";
  if (!failure.restartable()) {
    return absl::StrCat("exited with ", failure.exit_code(), " (non-restartable)");
  }
  if (failure.exit_code() == 0) return "reported a failure";
  return absl::StrCat("exited with code ", failure.exit_code(), MeaningInShells(failure.exit_code()));
}

std::string DescribeWho(const WorkerFailure& failure) {
  if (failure.rank() < 0) return absl::StrCat("node ", Host(failure));
  std::vector<std::string> details;
  if (failure.local_rank() >= 0) details.push_back(absl::StrCat("local rank ", failure.local_rank()));
  if (failure.pid() != 0) details.push_back(absl::StrCat("pid ", failure.pid()));
  return absl::StrCat("rank ", failure.rank(), " on ", Host(failure), details.empty() ? "" : " (",
                      absl::StrJoin(details, ", "), details.empty() ? "" : ")");
}

std::string DescribeFailure(const WorkerFailure& failure) {
  const std::string message = OneLine(failure.message(), kMaxMessageBytes);
  // The launcher's message says more exactly why the program was not started than its exit code does.
  const bool never_started = failure.rank() >= 0 && failure.pid() == 0 && failure.signal() == 0 && !message.empty();
  const std::string end = never_started ? "was not started" : DescribeEnd(failure);
  std::string text = absl::StrCat(DescribeWho(failure), " ", end);
  if (!message.empty() && !absl::StrContains(text, message)) absl::StrAppend(&text, ": ", message);
  if (!failure.progress().empty()) absl::StrAppend(&text, "; ", OneLine(failure.progress(), kMaxMessageBytes));
  return text;
}

void ShortenTexts(size_t max_bytes, WorkerFailure* failure) {
  for (std::string* line : {failure->mutable_message(), failure->mutable_error_file(), failure->mutable_progress()}) {
    if (line->size() > max_bytes) *line = OneLine(*line, max_bytes);
  }
  if (failure->traceback().size() > max_bytes) failure->set_traceback(CutMiddle(failure->traceback(), max_bytes));
}

std::string HostList(const std::vector<std::string>& hosts, size_t all) {
  std::string text;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool last = i + 1 == hosts.size() && all <= hosts.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", hosts[i]);
  }
  if (all > hosts.size()) absl::StrAppend(&text, " and ", all - hosts.size(), " more");
  return text;
}

std::string DescribeGivingUp(const WorkerFailure& failure, int32_t max_restarts, absl::Duration window) {
  const std::string what = DescribeFailure(failure);
  const bool said_so = failure.pid() != 0;
  if (!AllowsRestart(failure)) return said_so ? what : absl::StrCat(what, "; non-restartable");
  if (max_restarts == 0) return absl::StrCat(what, "; restarts are disabled (--max-restarts 0)");
  const std::string within =
      window > absl::ZeroDuration() ? absl::StrCat(" within ", absl::FormatDuration(window)) : "";
  return absl::StrCat(what, "; restart limit reached (", max_restarts, "/", max_restarts, within, ")");
}

std::string DescribeNoProgress(const WorkerFailure& failure, int32_t times) {
  return absl::StrCat(DescribeFailure(failure), "; no progress: failed ", Counted(times, "time"), " in a row at step ",
                      failure.step(), " (max_failures_at_step)");
}

std::string DescribeTooFew(const JobSettings& settings, absl::string_view what, bool told_to_stop) {
  return absl::StrCat(what, "; the job needs all ", settings.min_nodes(), " nodes",
                      told_to_stop ? "" : ", and restarts are disabled (--max-restarts 0)");
}

std::string DescribeJoinTimeout(const JobSettings& settings, absl::Duration waited, size_t joined,
                                const std::vector<std::string>& hosts, absl::string_view waits_because) {
  std::string text = absl::StrCat("timed out: ", joined, " of ", Counted(settings.min_nodes(), "node"),
                                  " joined within ", absl::FormatDuration(waited));
  if (joined > 0) absl::StrAppend(&text, ": ", HostList(hosts, joined));
  if (!waits_because.empty()) absl::StrAppend(&text, " (", waits_because, ")");
  return text;
}

std::string DescribeHeldUp(absl::string_view reason, const HeldUp& held_up) {
  std::string what;
  if (held_up.all_nodes > 0) {
    what = absl::StrCat("waiting for workers to stop on ", HostList(held_up.hosts, held_up.all_nodes));
  } else if (held_up.by_unknown) {
    what = "workers of a round before the server started may still run";
  } else if (held_up.by_gone) {
    what = "workers of nodes that are gone may still run";
  } else if (held_up.by_backoff) {
    what = "waiting for the restart backoff";
  }
  return absl::StrCat(reason, reason.empty() || what.empty() ? "" : "; ", what);
}

WorkerFailure NodeFailure(absl::string_view host, absl::string_view message) {
  WorkerFailure failure = NewFailure();
  failure.set_host(std::string(host));
  failure.set_exit_code(1);
  failure.set_message(std::string(message));
  return failure;
}

}  // namespace ddprun::rendezvous
