#include "launcher/report/explain_end.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/report/error_file_format.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

// In lower case. " line " covers shells ("sh: line 3: ...") and Perl's die.
constexpr absl::string_view kErrorWords[] = {
    "error",  "exception", "fatal",  "panic",   "abort",  "fail",      "assert",   "terminate called", "what():",
    "denied", "not found", "cannot", "no such", " line ", "no space ", "exceeded", "killed",           "segmentation",
};

// Length of the escape sequence (ECMA-48) at the start of `bytes`, which starts with ESC.
size_t EscapeLength(absl::string_view bytes) {
  size_t i = 1;
  const auto skip = [&](char first, char last) {
    while (i < bytes.size() && bytes[i] >= first && bytes[i] <= last) ++i;
  };
  if (i < bytes.size() && bytes[i] == '[') {
    ++i;
    skip('\x20', '\x3f');
  } else if (i < bytes.size() && bytes[i] == ']') {  // a title or link, to BEL or ESC backslash
    const size_t end = bytes.find_first_of("\a\x1b", i);
    if (end == absl::string_view::npos) return bytes.size();
    i = end + (bytes[end] == '\a' ? 0 : 1);
  } else {
    skip('\x20', '\x2f');
  }
  return std::min(i + 1, bytes.size());
}

std::string WithoutEscapes(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find('\x1b'), bytes.size());
    absl::StrAppend(&text, bytes.substr(0, plain));
    bytes.remove_prefix(plain);
    if (!bytes.empty()) bytes.remove_prefix(EscapeLength(bytes));
  }
  return text;
}

// Returns the part of a line that a terminal shows if the line was overwritten from its start.
absl::string_view LastState(absl::string_view line) {
  while (absl::EndsWith(line, "\r")) line.remove_suffix(1);
  const size_t start = line.rfind('\r');
  return start == absl::string_view::npos ? line : line.substr(start + 1);
}

bool ReportsError(absl::string_view line) {
  const std::string text = absl::AsciiStrToLower(line);
  return !absl::StrContains(text, "warning") &&
         std::any_of(std::begin(kErrorWords), std::end(kErrorWords),
                     [&](absl::string_view word) { return absl::StrContains(text, word); });
}

}  // namespace

LastLines ReadLastLines(absl::string_view bytes, absl::string_view known) {
  const std::string plain = WithoutEscapes(bytes);
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(plain, '\n')) {
    const std::string clean = CleanText(LastState(line));
    const absl::string_view shown = absl::StripTrailingAsciiWhitespace(Utf8Prefix(clean, LastLines::kMaxLineBytes));
    if (!shown.empty()) lines.emplace_back(shown);
  }
  if (lines.size() > LastLines::kMaxLines) lines.erase(lines.begin(), lines.end() - LastLines::kMaxLines);

  LastLines result;
  bool ignored = false;  // within the report of an exception that Python ignored
  for (const std::string& line : lines) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
    if (text.size() < line.size() && !absl::StartsWith(text, "what():")) continue;
    if (absl::StartsWith(text, "Exception ignored ")) {
      ignored = true;
    } else if (ignored) {
      ignored = absl::StartsWith(text, "Traceback ");
    } else if (ReportsError(text) && (known.empty() || !absl::StrContains(text, known))) {
      result.error = std::string(text);
    }
  }
  if (!lines.empty()) result.last = std::string(absl::StripLeadingAsciiWhitespace(lines.back()));
  result.text = absl::StrJoin(lines, "\n");
  return result;
}

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

namespace {

// NCCL's messages when it has no interface or reaches no peer over TCP, and when a verbs call or a transfer fails.
constexpr absl::string_view kSocketErrors[] = {"no socket interface", "socketStartConnect", "socketPollConnect",
                                               "NET/Socket"};
constexpr absl::string_view kInfinibandErrors[] = {"NET/IB", "ibv_"};

template <size_t n>
bool HasAny(absl::string_view text, const absl::string_view (&words)[n]) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](absl::string_view word) { return absl::StrContains(text, word); });
}

}  // namespace

std::string NcclHint(const rendezvous::WorkerFailure& failure, absl::string_view interface) {
  const std::string text = absl::StrCat(failure.message(), "\n", failure.traceback());
  if (!absl::StrContains(text, "NCCL") && !absl::StrContains(text, "nccl")) return "";
  constexpr absl::string_view kDebug = "; NCCL_DEBUG=INFO shows what NCCL chose";
  if (HasAny(text, kInfinibandErrors)) {
    return absl::StrCat(
        "NCCL failed on InfiniBand or RoCE: name the adapters that reach all nodes with NCCL_IB_HCA "
        "(for RoCE also NCCL_IB_GID_INDEX), or set NCCL_IB_DISABLE=1 to use TCP",
        kDebug);
  }
  if (HasAny(text, kSocketErrors)) {
    return absl::StrCat(
        "NCCL could not connect over TCP: set NCCL_SOCKET_IFNAME to the interface that reaches all nodes",
        interface.empty() ? "" : absl::StrCat(" (here the launchers use ", interface, ")"), kDebug);
  }
  return "";
}

}  // namespace ddprun::launcher
