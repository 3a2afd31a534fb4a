#include "launcher/config/host_spec.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/endpoint.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {
namespace {

absl::StatusOr<int> ParseSlots(absl::string_view text) {
  const absl::StatusOr<int64_t> slots = ParseInteger(text, 1, kMaxProcesses);
  if (!slots.ok()) return absl::InvalidArgumentError(absl::StrCat("number of workers: ", slots.status().message()));
  return static_cast<int>(*slots);
}

// ssh must not take a name for an option, and a name goes into messages and prefixes.
absl::Status CheckName(absl::string_view name) {
  const auto is_bad = [](char c) { return absl::ascii_isspace(c) || absl::ascii_iscntrl(c) || c == '\''; };
  if (name.empty() || name.front() == '-' || std::any_of(name.begin(), name.end(), is_bad)) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(name), " is not the name of a host"));
  }
  return absl::OkStatus();
}

// "a", "a:8", "fd00::1", "[fd00::1]:8", "user@a:8".
absl::StatusOr<HostSpec> ParseHostSpec(absl::string_view text) {
  HostSpec spec;
  const size_t at = text.rfind('@');
  const absl::string_view host = at == absl::string_view::npos ? text : text.substr(at + 1);
  const std::string user(text.substr(0, text.size() - host.size()));
  absl::string_view name = host;
  const size_t colon = host.rfind(':');
  if (colon != absl::string_view::npos && !IsIpv6Address(host) && !absl::EndsWith(host, "]")) {
    name = host.substr(0, colon);
    const absl::StatusOr<int> slots = ParseSlots(host.substr(colon + 1));
    if (!slots.ok()) return absl::InvalidArgumentError(absl::StrCat(Quoted(text), ": ", slots.status().message()));
    spec.slots = *slots;
  }
  if (absl::StartsWith(name, "[") && absl::EndsWith(name, "]")) name = name.substr(1, name.size() - 2);
  DDPRUN_RETURN_IF_ERROR(CheckName(name));
  spec.name = absl::StrCat(user, name);
  DDPRUN_RETURN_IF_ERROR(CheckName(spec.name));
  return spec;
}

absl::Status CheckCount(const std::vector<HostSpec>& hosts) {
  if (hosts.empty()) return absl::InvalidArgumentError("it names no host");
  if (hosts.size() > static_cast<size_t>(kMaxNodes)) {
    return absl::InvalidArgumentError(absl::StrCat("it names ", hosts.size(), " hosts; the most is ", kMaxNodes));
  }
  return absl::OkStatus();
}

// A line of a hostfile, without its comment.
absl::StatusOr<HostSpec> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  DDPRUN_ASSIGN_OR_RETURN(HostSpec spec, ParseHostSpec(words.front()));
  for (absl::string_view word : words) {
    if (!absl::ConsumePrefix(&word, "slots=")) continue;
    DDPRUN_ASSIGN_OR_RETURN(spec.slots, ParseSlots(word));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<HostSpec>> ParseHosts(absl::string_view text) {
  std::vector<HostSpec> hosts;
  std::unordered_set<std::string> names;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    DDPRUN_ASSIGN_OR_RETURN(HostSpec spec, ParseHostSpec(absl::StripAsciiWhitespace(word)));
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(spec.name),
                                                     " is given twice: each host runs one launcher; give ", spec.name,
                                                     ":N for N workers there"));
    }
    hosts.push_back(std::move(spec));
  }
  DDPRUN_RETURN_IF_ERROR(CheckCount(hosts));
  return hosts;
}

absl::StatusOr<std::vector<HostSpec>> ParseHostFile(absl::string_view text) {
  std::vector<HostSpec> hosts;
  std::unordered_map<std::string, size_t> index;  // key: name
  int number = 0;
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // some editors mark UTF-8
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<HostSpec> spec = ParseLine(line);
    if (!spec.ok()) return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", spec.status().message()));
    const auto [found, is_new] = index.emplace(spec->name, hosts.size());
    if (is_new) {
      hosts.push_back(*std::move(spec));
    } else {
      HostSpec& host = hosts[found->second];
      const int slots = host.slots.value_or(1) + spec->slots.value_or(1);
      if (slots > kMaxProcesses) {
        return absl::InvalidArgumentError(
            absl::StrCat("line ", number, ": ", slots, " workers on ", spec->name, "; the most is ", kMaxProcesses));
      }
      host.slots = slots;
    }
  }
  DDPRUN_RETURN_IF_ERROR(CheckCount(hosts));
  return hosts;
}

}  // namespace ddprun::launcher
