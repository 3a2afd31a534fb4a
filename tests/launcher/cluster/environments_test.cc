// Reads tests/launcher/cluster/environments/*.env (see README.md there).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "launcher/cluster/detect.h"

namespace ddprun::launcher {
namespace {

constexpr char kFolder[] = "tests/launcher/cluster/environments";

struct EnvironmentFile {
  std::string comment;   // lines that begin with '#'
  std::string expected;  // lines that begin with "> ", without the prefix
  std::string settings;  // all other lines, verbatim
  std::map<std::string, std::string> variables;
};

EnvironmentFile ReadEnvironmentFile(const std::string& name) {
  std::ifstream stream(absl::StrCat(kFolder, "/", name, ".env"));
  EnvironmentFile file;
  for (std::string line; std::getline(stream, line);) {
    if (absl::StartsWith(line, "#")) {
      absl::StrAppend(&file.comment, line, "\n");
    } else if (absl::StartsWith(line, "> ")) {
      absl::StrAppend(&file.expected, line.substr(2), "\n");
    } else if (!line.empty()) {
      absl::StrAppend(&file.settings, line, "\n");
      const std::pair<std::string, std::string> setting = absl::StrSplit(line, absl::MaxSplits('=', 1));
      if (setting.first == "@like") {
        file.variables = ReadEnvironmentFile(setting.second).variables;
      } else if (absl::StartsWith(line, "-")) {
        EXPECT_EQ(file.variables.erase(line.substr(1)), 1u) << name << ": " << line;
      } else {
        file.variables.insert_or_assign(setting.first, setting.second);
      }
    }
  }
  return file;
}

absl::StatusOr<ClusterEnvironment> Detect(const EnvironmentFile& file) {
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = file.variables.find(name);
    if (found == file.variables.end()) return std::nullopt;
    return found->second;
  };
  std::optional<PortRange> ports;
  if (const auto range = lookup("@port_range"); range.has_value()) {
    const std::vector<std::string> ends = absl::StrSplit(*range, '-');
    ports = PortRange{std::stoi(ends.at(0)), std::stoi(ends.at(1))};
  }
  return DetectCluster(lookup, ports, lookup("@full_name").value_or(""));
}

std::string Text(int value) { return absl::StrCat(value); }
std::string Text(const std::string& value) { return value; }
std::string Text(const Endpoint& value) { return value.ToString(); }

template <typename T>
std::string Line(const char* name, const std::optional<Found<T>>& found) {
  if (!found.has_value()) return "";
  return absl::StrCat(name, ": ", Text(found->value), " (", found->source, ")\n");
}

std::string Hosts(const std::vector<std::string>& hosts) {
  if (hosts.size() <= 8) return absl::StrJoin(hosts, " ");
  return absl::StrCat(hosts.front(), " ", hosts[1], " ... ", hosts.back(), "  (", hosts.size(), ")");
}

// One line per detected setting.
std::string Render(const absl::StatusOr<ClusterEnvironment>& found) {
  if (!found.ok()) return absl::StrCat("error: ", found.status().message(), "\n");
  if (found->starter == ClusterEnvironment::Starter::kNone) return "nothing\n";
  const ClusterEnvironment& s = *found;
  std::string node = absl::StrCat(Line("node_index", s.node_index), Line("host", s.host), Line("topology", s.topology));
  absl::StrReplaceAll({{")\n", "), "}}, &node);
  std::string text = absl::StrCat(s.description, "\n", Line("nnodes", s.nnodes), absl::StripSuffix(node, ", "),
                                  node.empty() ? "" : "\n", Line("gpus", s.gpus), Line("endpoint", s.endpoint),
                                  Line("job_id", s.job_id));
  if (!s.hosts.empty()) absl::StrAppend(&text, "hosts: ", Hosts(s.hosts), "\n");
  if (s.endpoint_appears_late) absl::StrAppend(&text, "the endpoint's name appears late\n");
  if (s.batch.has_value()) {
    absl::StrAppend(&text, "batch: job ", s.batch->job);
    if (s.batch->signals_every_process) absl::StrAppend(&text, ", signals every process");
    if (s.batch->restart_count > 0) absl::StrAppend(&text, ", restart ", s.batch->restart_count);
    if (s.batch->end_time.has_value()) absl::StrAppend(&text, ", ends at ", absl::ToUnixSeconds(*s.batch->end_time));
    absl::StrAppend(&text, "\n");
  }
  if (!s.gpu_binding.empty()) absl::StrAppend(&text, "gpu_binding: ", s.gpu_binding, "\n");
  if (!s.obstacle.empty()) absl::StrAppend(&text, "obstacle: ", s.obstacle, "\n");
  for (const std::string& note : s.notes) absl::StrAppend(&text, "note: ", note, "\n");
  return text;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".env") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string WithPrefix(const std::string& lines) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "> ", line, "\n");
  }
  return text;
}

class EnvironmentTest : public testing::TestWithParam<std::string> {};

TEST_P(EnvironmentTest, SaysWhatIsWritten) {
  const EnvironmentFile file = ReadEnvironmentFile(GetParam());
  const std::string found = Render(Detect(file));
  if (const char* folder = std::getenv("DDPRUN_REWRITE_ENVIRONMENTS"); folder != nullptr) {
    std::ofstream(absl::StrCat(folder, "/", GetParam(), ".env")) << file.comment << WithPrefix(found) << "\n"
                                                                 << file.settings;
    return;
  }
  EXPECT_EQ(found, file.expected);
  EXPECT_NE(file.comment, "") << "say what it is";
}

INSTANTIATE_TEST_SUITE_P(All, EnvironmentTest, testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

// NAME.0, NAME.1, ... are the nodes of one job: all must derive the same endpoint and different indices, and the first
// must be the endpoint's host.
TEST(Environments, NodesOfOneJob_Agree) {
  std::map<std::string, std::vector<ClusterEnvironment>> jobs;
  for (const std::string& name : Names()) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) continue;
    const absl::StatusOr<ClusterEnvironment> found = Detect(ReadEnvironmentFile(name));
    ASSERT_TRUE(found.ok()) << name << ": " << found.status();
    ASSERT_TRUE(found->node_index.has_value()) << name;
    EXPECT_EQ(absl::StrCat(found->node_index->value), name.substr(dot + 1));
    jobs[name.substr(0, dot)].push_back(*found);
  }
  EXPECT_GE(jobs.size(), 6u);
  for (const auto& [name, nodes] : jobs) {
    std::set<std::string> topologies;
    for (const ClusterEnvironment& node : nodes) {
      EXPECT_EQ(node.nnodes->value, nodes.size()) << name;
      EXPECT_EQ(node.endpoint->value, nodes.front().endpoint->value) << name;
      EXPECT_EQ(node.job_id->value, nodes.front().job_id->value) << name;
      EXPECT_EQ(node.hosts, nodes.front().hosts) << name;
      EXPECT_EQ(node.hosts[node.node_index->value], node.host->value) << name;
      topologies.insert(node.topology->value);
    }
    EXPECT_EQ(nodes.front().endpoint->value.host, nodes.front().host->value) << name;
    EXPECT_EQ(topologies.size(), nodes.size()) << name;
  }
}

TEST(Environments, Folder_HasThem) { EXPECT_GE(Names().size(), 60u); }

}  // namespace
}  // namespace ddprun::launcher
