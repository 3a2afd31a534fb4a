#include "launcher/hosts/node_comparison.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

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
constexpr size_t kMaxHosts = 8;  // shown in the table

std::string BytesText(int64_t bytes) {
  if (bytes < 0) return "unlimited";
  if (bytes >= int64_t{1} << 30) return absl::StrFormat("%.1f GiB", bytes / 1073741824.0);
  return absl::StrCat(bytes >> 20, " MiB");
}

std::string CountText(int64_t count) { return count < 0 ? "unlimited" : absl::StrCat(count); }

// A row of the table. Hosts with equal texts are equal in this respect.
struct Row {
  const char* name;
  std::function<std::string(const HostReading&)> text;
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
      {"NVIDIA driver", [](const HostReading& h) { return OrNone(h.facts.driver()); }},
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

// The value of most hosts; among equals, that of the first.
std::string Common(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  return *std::max_element(values.begin(), values.end(),
                           [&](const auto& a, const auto& b) { return counts[a] < counts[b]; });
}

template <typename Text>
std::vector<std::string> TextsOf(const std::vector<HostReading>& hosts, const Text& text) {
  std::vector<std::string> texts;
  for (const HostReading& host : hosts) texts.push_back(text(host));
  return texts;
}

bool Differ(const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text != texts.front(); });
}

class Table {
 public:
  explicit Table(const std::vector<HostReading>& hosts) : hosts_(hosts) {}

  void Add(const std::string& name, const std::vector<std::string>& texts) { lines_.push_back({name, texts}); }

  // Hosts that have the same values in all rows share a column.
  std::string Text() const {
    if (lines_.empty()) return "";
    std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> columns;  // values, host names
    for (size_t i = 0; i < hosts_.size(); ++i) {
      std::vector<std::string> values;
      for (const auto& [name, texts] : lines_) values.push_back(texts[i]);
      const auto same = std::find_if(columns.begin(), columns.end(), [&](const auto& c) { return c.first == values; });
      if (same != columns.end()) {
        same->second.push_back(hosts_[i].name);
      } else {
        columns.push_back({values, {hosts_[i].name}});
      }
    }
    std::vector<std::vector<std::string>> cells = {{"host"}};
    for (const auto& line : lines_) cells.push_back({line.first});
    for (size_t c = 0; c < std::min(columns.size(), kMaxHosts); ++c) {
      const auto& [values, names] = columns[c];
      cells[0].push_back(names.size() <= 3 ? absl::StrJoin(names, ",")
                                           : absl::StrCat(names.front(), " and ", names.size() - 1, " more"));
      for (size_t row = 0; row < values.size(); ++row) cells[row + 1].push_back(values[row]);
    }
    return Aligned(cells);
  }

 private:
  static std::string Aligned(const std::vector<std::vector<std::string>>& cells) {
    std::vector<size_t> widths(cells.front().size());
    for (const auto& row : cells) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : cells) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) absl::StrAppendFormat(&line, "  %-*s", widths[i], row[i]);
      while (line.back() == ' ') line.pop_back();
      absl::StrAppend(&out, line, "\n");
    }
    return out;
  }

  const std::vector<HostReading>& hosts_;
  std::vector<std::pair<std::string, std::vector<std::string>>> lines_;
};

// A line for each host whose value is not the common one. `line` makes it of the host, its value and the common one.
template <typename Text, typename Line>
void NameOddOnes(const std::vector<HostReading>& hosts, const Text& text, const Line& line,
                 std::vector<std::string>* lines) {
  const std::vector<std::string> texts = TextsOf(hosts, text);
  const std::string common = Common(texts);
  const auto owner = static_cast<size_t>(std::find(texts.begin(), texts.end(), common) - texts.begin());
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (texts[i] != common) lines->push_back(line(hosts[i].name, texts[i], hosts[owner].name, common));
  }
}

}  // namespace

NodeComparison CompareNodes(const std::vector<HostReading>& hosts) {
  NodeComparison result;
  if (hosts.empty()) return result;
  Table table(hosts);
  for (const Row& row : Rows(hosts)) {
    const std::vector<std::string> texts = TextsOf(hosts, row.text);
    if (Differ(texts)) table.Add(row.name, texts);
  }
  result.table = table.Text();

  const auto differs = [](const char* what, const char* remedy) {
    return [what, remedy](const std::string& host, const std::string& has, const std::string& other,
                          const std::string& common) {
      return absl::StrCat(host, " has ", what, " ", OrNone(has), ", ", other, " has ", OrNone(common), ": ", remedy);
    };
  };
  NameOddOnes(
      hosts, [](const HostReading& h) { return h.facts.torch(); },
      differs("torch", "install the same version on all hosts"), &result.errors);
  NameOddOnes(
      hosts, [](const HostReading& h) { return Series(h.facts.python()); },
      differs("Python", "use the same environment on all hosts, or set PYTHON_EXEC"), &result.errors);
  NameOddOnes(
      hosts, [](const HostReading& h) { return absl::StrCat(h.facts.script_hash()); },
      [](const std::string& host, const std::string&, const std::string& other, const std::string&) {
        return absl::StrCat("the script on ", host, " is not that of ", other, ": copy it again");
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

}  // namespace ddprun::launcher
