#include "launcher/config/flag_value.h"

#include <signal.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsOneOf(absl::string_view text, std::initializer_list<absl::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

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

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  // SimpleAtoi accepts blanks and a plus sign, which are mistakes in a flag.
  const bool plain = text.find_first_not_of("-0123456789") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a whole number from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<absl::Duration> ParseSeconds(absl::string_view text) {
  double seconds = 0;
  const bool digits_only = text.find_first_not_of("0123456789.") == absl::string_view::npos;
  if (text.size() > 1 && text.front() == '-' && absl::SimpleAtod(text, &seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is negative: give a number of seconds"));
  }
  if (!digits_only || !absl::SimpleAtod(text, &seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a number of seconds, such as 30 or 0.5"));
  }
  if (seconds > kMaxSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is too long: at most ", static_cast<int64_t>(kMaxSeconds), " seconds"));
  }
  return absl::Trunc(absl::Seconds(seconds), absl::Nanoseconds(1));
}

absl::StatusOr<absl::Duration> ParsePositiveSeconds(absl::string_view text) {
  absl::StatusOr<absl::Duration> seconds = ParseSeconds(text);
  if (seconds.ok() && *seconds <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is too short: it must be more than 0 seconds"));
  }
  return seconds;
}

absl::StatusOr<bool> ParseBool(absl::string_view text) {
  if (IsOneOf(text, {"1", "true", "t", "yes", "y"})) return true;
  if (IsOneOf(text, {"0", "false", "f", "no", "n"})) return false;
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is neither 1 (true) nor 0 (false)"));
}

absl::StatusOr<std::string> ParseName(absl::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("the name is empty");
  if (text.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name is ", text.size(), " bytes long: at most ", kMaxNameBytes));
  }
  if (OneLine(text, kMaxNameBytes) != text) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " has leading or trailing blanks, or unprintable bytes"));
  }
  return std::string(text);
}

std::string NodeCount::ToString() const { return MinMaxText(min, max); }

absl::StatusOr<NodeCount> ParseNodeCount(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() > 2) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is neither N nor MIN:MAX, such as 2 or 1:4"));
  }
  std::vector<int> numbers;
  for (const absl::string_view part : parts) {
    absl::StatusOr<int64_t> number = ParseInteger(part, 1, kMaxNodes);
    if (!number.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text), " is neither N nor MIN:MAX, such as 2 or 1:4: ", number.status().message()));
    }
    numbers.push_back(static_cast<int>(*number));
  }
  const NodeCount count{numbers.front(), numbers.back()};
  if (count.min > count.max) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " asks for at least ", count.min, " and at most ",
                                                   count.max, " nodes: put the smaller number first"));
  }
  return count;
}

absl::StatusOr<ProcessCount> ParseProcessCount(absl::string_view text) {
  if (text == "cpu") return ProcessCount{ProcessCount::Kind::kCpu};
  for (const char* const device : {"gpu", "xpu", "hpu", "npu"}) {
    if (text == device) return ProcessCount{.kind = ProcessCount::Kind::kDevice, .device = device};
  }
  if (text == "auto") return ProcessCount{ProcessCount::Kind::kAuto};
  absl::StatusOr<int64_t> number = ParseInteger(text, 1, kMaxProcesses);
  if (!number.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(number.status().message(), ", nor cpu, gpu, xpu, hpu, npu or auto"));
  }
  return ProcessCount{ProcessCount::Kind::kNumber, static_cast<int>(*number)};
}

std::string PortRange::ToString() const { return absl::StrCat(first, "-", last); }

absl::StatusOr<PortRange> ParsePortRange(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::ByAnyChar("-:"));
  if (parts.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not FIRST-LAST, such as 20000-20100"));
  }
  int ports[2];
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<int64_t> port = ParseInteger(parts[i], 1, 65535);
    if (!port.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text), " is not FIRST-LAST, such as 20000-20100: ", port.status().message()));
    }
    ports[i] = static_cast<int>(*port);
  }
  if (ports[0] > ports[1]) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " ends before it starts: put the smaller port first"));
  }
  return PortRange{ports[0], ports[1]};
}

std::vector<PortRange> StorePorts(const PortRange& range, int reserved, int last_store) {
  const int next = range.Has(last_store) ? last_store + 1 : range.first;
  std::vector<PortRange> parts;
  for (const PortRange& half : {PortRange{next, range.last}, PortRange{range.first, next - 1}}) {
    if (!half.Has(reserved)) {
      parts.push_back(half);
    } else {
      parts.push_back({half.first, reserved - 1});
      parts.push_back({reserved + 1, half.last});
    }
  }
  parts.erase(std::remove_if(parts.begin(), parts.end(), [](const PortRange& p) { return p.first > p.last; }),
              parts.end());
  return parts;
}

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

absl::StatusOr<HangPolicy> ParseHangPolicy(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view action = text.substr(0, colon);
  if (action != "report" && action != "restart") {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is invalid: give report or restart, or with a limit, such as restart:60"));
  }
  HangPolicy policy;
  policy.restart = action == "restart";
  if (colon == absl::string_view::npos) return policy;
  DDPRUN_ASSIGN_OR_RETURN(const absl::Duration limit, ParseSeconds(text.substr(colon + 1)));
  policy.fixed_limit = limit;
  policy.watch = limit > absl::ZeroDuration();
  return policy;
}

std::string HangPolicyText(const HangPolicy& policy) {
  if (!policy.watch) return "none";
  const std::string limit = policy.fixed_limit > absl::ZeroDuration()
                                ? absl::StrCat(", limit ", absl::FormatDuration(policy.fixed_limit))
                                : "";
  return absl::StrCat(policy.restart ? "restart" : "report", limit);
}

}  // namespace ddprun::launcher
