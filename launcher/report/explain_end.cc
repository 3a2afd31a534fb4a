#include "launcher/report/explain_end.h"

#include <signal.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/report/error_file_format.h"
#include "launcher/report/last_lines.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

// True if a program that ends by this signal usually prints why.
bool PrintsWhy(int signal) {
  return signal == 0 || signal == SIGABRT || signal == SIGILL || signal == SIGTRAP || signal == SIGSEGV;
}

// True if the worker, or a process that it started, was killed by SIGKILL.
bool WasKilled(const rendezvous::WorkerFailure& failure) {
  return failure.signal() == SIGKILL || failure.exit_code() == worker_contract::ExitCodeOfSignal(SIGKILL) ||
         absl::StrContains(absl::AsciiStrToLower(failure.message()), "killed") ||
         absl::StrContains(failure.message(), "SIGKILL");
}

// True if Python reports that a process which it started has failed: the reason is on stderr.
bool IsAboutAChild(const rendezvous::WorkerFailure& failure) {
  return absl::StrContains(failure.message(), "returned non-zero exit status") ||
         absl::StrContains(failure.message(), "terminated with exit code");
}

void AddToMessage(absl::string_view text, rendezvous::WorkerFailure* failure) {
  std::string message = OneLine(failure->message(), kMaxErrorMessageBytes / 2);
  if (absl::StrContains(message, text)) return;
  failure->set_message(absl::StrCat(message, message.empty() ? "" : "; ", text));
}

}  // namespace

void ExplainEnd(const EndEvidence& evidence, rendezvous::WorkerFailure* failure) {
  const LastLines lines = ReadLastLines(evidence.output, failure->message());
  const bool prints_why = PrintsWhy(failure->signal());
  if (failure->message().empty()) {
    if (prints_why) failure->set_message(lines.error);
    if (failure->message().empty() && failure->signal() == 0 && !lines.last.empty()) {
      failure->set_message(absl::StrCat(kLastLine, lines.last));
    }
  } else if ((failure->signal() == SIGABRT || IsAboutAChild(*failure)) && !lines.error.empty()) {
    AddToMessage(lines.error, failure);
  }
  // A single line is quoted once.
  if (failure->traceback().empty() && !absl::EndsWith(failure->message(), lines.text)) {
    failure->set_traceback(absl::StrCat("last lines of stderr:\n", lines.text));
  }
  if (!evidence.oom_kills.empty() && WasKilled(*failure)) {
    failure->set_oom_killed(true);
    AddToMessage(evidence.oom_kills, failure);
  }
  if (evidence.core_dumped) AddToMessage(kCoreDumped, failure);
}

void ExplainNoErrorFile(const absl::Status& why, rendezvous::WorkerFailure* failure) {
  if (!why.ok()) AddToMessage(absl::StrCat(why.message(), "; output may be lost"), failure);
}

}  // namespace ddprun::launcher
