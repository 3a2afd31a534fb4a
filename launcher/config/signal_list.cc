#include "launcher/config/signal_list.h"

#include <signal.h>

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/process.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

struct Signal {
  int number;
  const char* name;
  bool can_be_listed;  // allowed in --signals-to-handle
};

constexpr Signal kSignals[] = {
    {SIGHUP, "SIGHUP", true},       {SIGINT, "SIGINT", true},       {SIGQUIT, "SIGQUIT", true},
    {SIGILL, "SIGILL", false},      {SIGTRAP, "SIGTRAP", false},    {SIGABRT, "SIGABRT", false},
    {SIGBUS, "SIGBUS", false},      {SIGFPE, "SIGFPE", false},      {SIGKILL, "SIGKILL", false},
    {SIGUSR1, "SIGUSR1", true},     {SIGSEGV, "SIGSEGV", false},    {SIGUSR2, "SIGUSR2", true},
    {SIGPIPE, "SIGPIPE", false},    {SIGALRM, "SIGALRM", true},     {SIGTERM, "SIGTERM", true},
    {SIGSTKFLT, "SIGSTKFLT", true}, {SIGCHLD, "SIGCHLD", false},    {SIGCONT, "SIGCONT", true},
    {SIGSTOP, "SIGSTOP", false},    {SIGTSTP, "SIGTSTP", true},     {SIGTTIN, "SIGTTIN", true},
    {SIGTTOU, "SIGTTOU", true},     {SIGURG, "SIGURG", true},       {SIGXCPU, "SIGXCPU", true},
    {SIGXFSZ, "SIGXFSZ", false},    {SIGVTALRM, "SIGVTALRM", true}, {SIGPROF, "SIGPROF", true},
    {SIGWINCH, "SIGWINCH", true},   {SIGIO, "SIGIO", true},         {SIGPWR, "SIGPWR", true},
    {SIGSYS, "SIGSYS", false},
};

const Signal* FindByName(absl::string_view name) {
  const absl::string_view bare = absl::StripPrefix(name, "SIG");
  const Signal* found = std::find_if(std::begin(kSignals), std::end(kSignals),
                                     [&](const Signal& s) { return bare == absl::StripPrefix(s.name, "SIG"); });
  return found == std::end(kSignals) ? nullptr : found;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseSignals(absl::string_view text) {
  std::vector<int> signals;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    name = absl::StripAsciiWhitespace(name);
    const Signal* found = FindByName(name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(name), " is not the name of a signal, such as SIGTERM or SIGUSR1"));
    }
    if (!found->can_be_listed) {
      return absl::InvalidArgumentError(absl::StrCat(found->name, " can't be handled: leave it out"));
    }
    if (std::find(signals.begin(), signals.end(), found->number) == signals.end()) {
      signals.push_back(found->number);
    }
  }
  return signals;
}

std::string SignalNames(absl::Span<const int> signals) {
  return absl::StrJoin(signals, ",", [](std::string* out, int signal) { out->append(SignalName(signal)); });
}

}  // namespace ddprun::launcher
