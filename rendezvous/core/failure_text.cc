#include "rendezvous/core/failure_text.h"

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

}  // namespace ddprun::rendezvous
