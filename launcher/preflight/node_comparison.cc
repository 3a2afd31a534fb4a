#include "launcher/preflight/node_comparison.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using Facts = hosts::v1::HostReport::Facts;

constexpr absl::Duration kClockTolerance = absl::Seconds(1);
constexpr int64_t kLowShm = 64 << 20;  // Docker's default: too little for NCCL and DataLoader workers
constexpr int64_t kLowTmp = 1 << 20;
constexpr size_t kMaxColumn = 40;
constexpr size_t kMaxColumns = 9;  // columns of the table, the first of which names the rows

std::string BytesText(int64_t bytes) {
  if (bytes < 0) return "unlimited";
  if (bytes >= int64_t{1} << 30) return absl::StrFormat("%.1f GiB", bytes / 1073741824.0);
  return absl::StrCat(bytes >> 20, " MiB");
}

std::string CountText(int64_t count) { return count < 0 ? "unlimited" : absl::StrCat(count); }

// A row of the table. Hosts with equal texts are equal in this respect.
using TextOf = std::function<std::string(const HostReading&)>;
struct Row {
  const char* name;
  TextOf text;
};

std::string OrNone(const std::string& text) { return text.empty() ? "none" : OneLine(text, kMaxColumn); }

// "3.11" of "3.11.7": modules and pickles fit all of a series.
std::string Series(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  return parts.size() < 2 ? version : absl::StrCat(parts[0], ".", parts[1]);
}

// Amounts that always vary a little: a row is shown only if one has less than half of another.
bool VariesMuch(const std::vector<HostReading>& hosts, int64_t (Facts::*amount)() const) {
  int64_t least = INT64_MAX, most = 0;
  for (const HostReading& host : hosts) {
    const int64_t value = (host.facts.*amount)();
    least = std::min(least, value < 0 ? INT64_MAX : value);
    most = std::max(most, value < 0 ? INT64_MAX : value);
  }
  return least < most / 2;
}

std::vector<Row> Rows(const std::vector<HostReading>& hosts) {
  std::vector<Row> rows = {
      {"Python", [](const HostReading& h) { return OrNone(h.facts.python()); }},
      {"torch", [](const HostReading& h) { return OrNone(h.facts.torch()); }},
      {"NCCL", [](const HostReading& h) { return OrNone(h.facts.nccl()); }},
      {"device driver", [](const HostReading& h) { return OrNone(h.facts.driver()); }},
      {"GPUs", [](const HostReading& h) { return absl::StrCat(h.facts.gpus()); }},
      {"script", [](const HostReading& h) { return absl::StrFormat("%08x", h.facts.script_hash() & 0xffffffff); }},
      {"open files (ulimit -Hn)", [](const HostReading& h) { return CountText(h.facts.max_open_files()); }},
      {"locked memory (ulimit -Hl)", [](const HostReading& h) { return BytesText(h.facts.max_locked_bytes()); }},
      {"clock", [](const HostReading& h) -> std::string {
         const absl::Duration ahead = h.clock_ahead;
         if (ahead <= kClockTolerance + h.clock_error && -ahead <= kClockTolerance + h.clock_error) return "right";
         return absl::StrFormat("%.1f s %s", std::abs(absl::ToDoubleSeconds(ahead)),
                                ahead > absl::ZeroDuration() ? "ahead" : "behind");
       }}};
  if (VariesMuch(hosts, &Facts::shm_free_bytes)) {
    rows.push_back({"free in /dev/shm", [](const HostReading& h) { return BytesText(h.facts.shm_free_bytes()); }});
  }
  return rows;
}

std::vector<std::string> TextsOf(const std::vector<HostReading>& hosts, const TextOf& text) {
  std::vector<std::string> texts;
  for (const HostReading& host : hosts) texts.push_back(text(host));
  return texts;
}

// The rows that differ. Hosts that have the same values in all of them share a column.
std::string Table(const std::vector<HostReading>& hosts) {
  std::vector<std::vector<std::string>> columns = {{"host"}}, names = {{}};
  std::vector<std::vector<std::string>> by_host(hosts.size());
  for (const Row& row : Rows(hosts)) {
    const std::vector<std::string> texts = TextsOf(hosts, row.text);
    if (std::set<std::string>(texts.begin(), texts.end()).size() < 2) continue;
    columns[0].push_back(row.name);
    for (size_t i = 0; i < hosts.size(); ++i) by_host[i].push_back(texts[i]);
  }
  if (columns[0].size() == 1) return "";
  for (size_t i = 0; i < hosts.size(); ++i) {
    by_host[i].insert(by_host[i].begin(), "");
    const size_t same = std::find(columns.begin(), columns.end(), by_host[i]) - columns.begin();
    if (same == columns.size()) {
      columns.push_back(by_host[i]);
      names.emplace_back();
    }
    names[same].push_back(hosts[i].name);
  }
  columns.resize(std::min(columns.size(), kMaxColumns));
  std::vector<std::string> lines(columns[0].size());
  for (size_t c = 0; c < columns.size(); ++c) {
    if (c > 0) {
      columns[c][0] = names[c].size() <= 3 ? absl::StrJoin(names[c], ",")
                                           : absl::StrCat(names[c].front(), " and ", names[c].size() - 1, " more");
    }
    size_t width = 0;
    for (const std::string& cell : columns[c]) width = std::max(width, cell.size());
    for (size_t row = 0; row < lines.size(); ++row)
      absl::StrAppendFormat(&lines[row], "  %-*s", width, columns[c][row]);
  }
  std::string out;
  for (const std::string& line : lines) absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(line), "\n");
  return out;
}

// A line for each host whose value is not that of most hosts; among equals, that of the first. `line` makes it of the
// host, its value and a host with the common one.
void NameOddOnes(const std::vector<HostReading>& hosts, const TextOf& text,
                 const std::function<std::string(const HostReading&, const HostReading&)>& line,
                 std::vector<std::string>* lines) {
  const std::vector<std::string> texts = TextsOf(hosts, text);
  std::map<std::string, int> counts;
  for (const std::string& value : texts) ++counts[value];
  const auto common =
      std::max_element(texts.begin(), texts.end(), [&](const auto& a, const auto& b) { return counts[a] < counts[b]; });
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (texts[i] != *common) lines->push_back(line(hosts[i], hosts[common - texts.begin()]));
  }
}

}  // namespace

NodeComparison CompareNodes(const std::vector<HostReading>& hosts) {
  NodeComparison result;
  if (hosts.empty()) return result;
  result.table = Table(hosts);
  const TextOf torch = [](const HostReading& h) { return OrNone(h.facts.torch()); };
  const TextOf python = [](const HostReading& h) { return OrNone(Series(h.facts.python())); };
  const auto differs = [](const char* what, const TextOf& text, const char* remedy) {
    return [=](const HostReading& host, const HostReading& other) {
      return absl::StrCat(host.name, " has ", what, " ", text(host), ", ", other.name, " has ", text(other), ": ",
                          remedy);
    };
  };
  NameOddOnes(hosts, torch, differs("torch", torch, "install the same version on all hosts"), &result.errors);
  NameOddOnes(hosts, python, differs("Python", python, "use the same environment on all hosts, or set PYTHON_EXEC"),
              &result.errors);
  NameOddOnes(
      hosts, [](const HostReading& h) { return absl::StrCat(h.facts.script_hash()); },
      [](const HostReading& host, const HostReading& other) {
        return absl::StrCat("the script on ", host.name, " is not that of ", other.name, ": copy it again");
      },
      &result.warnings);
  for (const HostReading& host : hosts) {
    const Facts& facts = host.facts;
    if (facts.tmp_free_bytes() < kLowTmp) {
      result.errors.push_back(
          absl::StrCat(host.name, ": no space is left in ", facts.tmp(),
                       ": free some, or set TMPDIR to another folder and pass it with --env=TMPDIR"));
    }
    if (facts.shm_free_bytes() < kLowShm) {
      result.warnings.push_back(absl::StrCat(host.name, ": ", BytesText(facts.shm_free_bytes()),
                                             " are free in /dev/shm, which NCCL and DataLoader workers use"));
    }
  }
  return result;
}

AddressChoice ChooseCommonAddress(const hosts::v1::HostReport::Listening& first,
                                  const std::vector<HostReading>& hosts) {
  AddressChoice choice;
  const auto reaches = [](const HostReading& host, int address) {
    return address < static_cast<int>(host.errors.size()) && host.errors[address].empty();
  };
  for (int address = 0; address < first.addresses_size(); ++address) {
    if (std::all_of(hosts.begin() + 1, hosts.end(), [&](const HostReading& host) { return reaches(host, address); })) {
      choice.index = address;
      return choice;
    }
  }
  for (size_t k = 1; k < hosts.size(); ++k) {
    std::vector<std::string> attempts;
    for (int address = 0; address < first.addresses_size(); ++address) {
      const auto& tried = first.addresses(address);
      attempts.push_back(absl::StrCat(tried.address(), " (", tried.interface(),
                                      "): ", reaches(hosts[k], address) ? "works" : hosts[k].errors[address]));
    }
    choice.errors.push_back(absl::StrCat(hosts[k].name, " from port to port ", first.port(), " of ", hosts[0].name,
                                         ": ", attempts.empty() ? "it has no address" : absl::StrJoin(attempts, ", ")));
  }
  return choice;
}

}  // namespace ddprun::launcher
