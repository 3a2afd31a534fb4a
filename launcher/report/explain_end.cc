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
#include "launcher/report/first_cause.h"
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

// The last of these lines that the watchdog of an NCCL group printed, without indentation; empty: it printed none.
absl::string_view WatchdogLine(absl::string_view lines) {
  absl::string_view found;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    const std::string text = absl::AsciiStrToLower(line);
    const bool matches = std::any_of(PeerErrors().begin(), PeerErrors().end(), [&](const PeerError& error) {
      return error.by_watchdog && absl::StrContains(text, error.text);
    });
    if (matches) found = absl::StripLeadingAsciiWhitespace(line);
  }
  return found;
}

void AddToMessage(absl::string_view text, rendezvous::WorkerFailure* failure) {
  std::string message = OneLine(failure->message(), kMaxErrorMessageBytes / 2);
  if (absl::StrContains(message, text)) return;
  failure->set_message(absl::StrCat(message, message.empty() ? "" : "; ", text));
}

// A library's messages when it has no interface, or reaches no peer.
struct NetworkErrors {
  const char* marker;  // occurs in the text of each of the library's failures, in upper or lower case
  const char* library;
  absl::string_view texts[4];  // any of them
  const char* advice;
  bool has_interface;  // the advice is about the interface
};
constexpr NetworkErrors kNetworkErrors[] = {
    // A verbs call or a transfer failed.
    {"NCCL",
     "NCCL",
     {"NET/IB", "ibv_"},
     "failed on InfiniBand or RoCE: name the adapters that reach all nodes with NCCL_IB_HCA (for RoCE also "
     "NCCL_IB_GID_INDEX), or set NCCL_IB_DISABLE=1 to use TCP",
     false},
    {"NCCL",
     "NCCL",
     {"no socket interface", "socketStartConnect", "socketPollConnect", "NET/Socket"},
     "could not connect over TCP: set NCCL_SOCKET_IFNAME to the interface that reaches all nodes",
     true},
    // Huawei's HCCL user guide, "Connection Setup Timeout (EI0006)" and "Timeout Occurs When a Socket Is Created
    // Between a Rank and a Server (EI0015)".
    {"HCCL",
     "HCCL",
     {"EI0006", "EI0015", "topo exchange agent get socket timeout", "wait socket establish timeout"},
     "could not connect: set HCCL_SOCKET_IFNAME to the interface that reaches all nodes",
     true},
    // src/atl/util/pm/pmi_resizable_rt/pmi_resizable/kvs/internal_kvs.cpp and src/atl/ofi/atl_ofi.cpp of oneCCL.
    {"CCL_ERROR",
     "oneCCL",
     {"fill_local_host_ip", "init_main_server_address"},
     "could not connect over TCP: set CCL_KVS_IFACE to the interface that reaches all nodes",
     true},
    {"CCL_ERROR",
     "oneCCL",
     {"can't find suitable provider", "can not open network providers"},
     "has no network provider: set FI_PROVIDER to one of libfabric that all nodes have (fi_info lists them)",
     false},
};

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

void ExplainEnd(const EndEvidence& evidence, rendezvous::WorkerFailure* failure) {
  const LastLines lines = ReadLastLines(evidence.output, failure->message());
  const bool prints_why = PrintsWhy(failure->signal());
  const absl::string_view watchdog = failure->signal() == SIGABRT ? WatchdogLine(lines.text) : "";
  if (!watchdog.empty()) {
    AddToMessage(absl::StrCat("ended by NCCL's watchdog: ", watchdog), failure);
  } else if (failure->message().empty()) {
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

std::string NetworkHint(const rendezvous::WorkerFailure& failure, absl::string_view interface) {
  const std::string text = absl::StrCat(failure.message(), "\n", failure.traceback());
  const auto has = [&](absl::string_view words) { return !words.empty() && absl::StrContains(text, words); };
  for (const NetworkErrors& errors : kNetworkErrors) {
    if (!has(errors.marker) && !has(absl::AsciiStrToLower(errors.marker))) continue;
    if (std::none_of(std::begin(errors.texts), std::end(errors.texts), has)) continue;
    const absl::string_view library = has("RCCL") || has("librccl") ? "RCCL" : errors.library;
    const bool names = errors.has_interface && !interface.empty();
    return absl::StrCat(library, " ", errors.advice,
                        names ? absl::StrCat(" (here the launchers use ", interface, ")") : "",
                        errors.library == absl::string_view("NCCL") ? "; NCCL_DEBUG=INFO shows what it chose" : "");
  }
  return "";
}

}  // namespace ddprun::launcher
