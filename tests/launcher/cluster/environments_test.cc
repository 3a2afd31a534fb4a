// Recorded environments: tests/launcher/cluster/*.env, one file for each kind of cluster.
//
// A section "[NAME]" is a process that starts ddprun; NAME.0, NAME.1, ... are the nodes of one job, which must agree.
// Lines with "#" describe the environment, lines with ">" are the expected result, the rest are the variables;
// "@full_name=" is the host's full name, "@port_range=" the value of --port-range, "@file:PATH=" the contents of a
// file; "\n" in a value is a newline. "@like=NAME" (after the description) takes the result and the variables of an
// earlier section; the lines after it set or, as "> -SETTING" and "-VARIABLE", remove some.
//
// "Recorded" environments are those of a real SLURM, without unused variables (addresses and ports of srun, users,
// names, task ids); most have the job id of one of them. The others are composed from documentation and published
// examples.
//
// With DDPRUN_REWRITE_ENVIRONMENTS=$PWD/tests/launcher/cluster this program rewrites the ">" lines; then review the
// difference.
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

constexpr char kFolder[] = "tests/launcher/cluster";

// Expected or detected settings, by the word before the colon.
using Settings = std::map<std::string, std::string>;

struct Environment {
  std::string file;       // name without its folder
  std::string comment;    // lines that begin with '#'
  std::string like;       // name in the line "@like=NAME"
  Settings expected;      // lines that begin with "> ", and those of `like`
  std::string own_lines;  // all other lines, verbatim
  std::map<std::string, std::string> variables;
};

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream stream(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Name in the heading of a section; empty: the line is none.
std::string SectionName(absl::string_view line) {
  return absl::ConsumePrefix(&line, "[") && absl::ConsumeSuffix(&line, "]") ? std::string(line) : "";
}

std::vector<std::string> FileNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".env") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void AddLine(const std::string& name, const std::string& line, Environment* to) {
  if (absl::StartsWith(line, "#")) {
    absl::StrAppend(&to->comment, line, "\n");
  } else if (absl::StartsWith(line, "> -")) {
    EXPECT_EQ(to->expected.erase(line.substr(3)), 1u) << name << ": " << line;
  } else if (absl::StartsWith(line, "> ")) {
    const std::pair<std::string, std::string> setting = absl::StrSplit(line.substr(2), absl::MaxSplits(": ", 1));
    if ((setting.first == "error") != (to->expected.count("error") > 0)) to->expected.clear();
    to->expected.insert_or_assign(setting.first, setting.second);
  } else if (!line.empty()) {
    absl::StrAppend(&to->own_lines, line, "\n");
    const std::pair<std::string, std::string> setting = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (absl::StartsWith(line, "-")) {
      EXPECT_EQ(to->variables.erase(line.substr(1)), 1u) << name << ": " << line;
    } else {
      to->variables.insert_or_assign(setting.first, setting.second);
    }
  }
}

// Sections by name. A section comes after the one that it is like.
std::map<std::string, Environment> ReadEnvironments() {
  std::map<std::string, Environment> all;
  for (const std::string& file : FileNames()) {
    std::string name;
    for (const std::string& line : Lines(absl::StrCat(kFolder, "/", file))) {
      if (const std::string heading = SectionName(line); !heading.empty()) {
        name = heading;
        EXPECT_TRUE(all.emplace(name, Environment{.file = file}).second) << name << " is there twice";
      } else if (absl::StartsWith(line, "@like=")) {
        Environment& environment = all.at(name);
        environment.like = line.substr(6);
        environment.expected = all.at(environment.like).expected;
        environment.variables = all.at(environment.like).variables;
      } else {
        AddLine(name, line, &all.at(name));
      }
    }
  }
  return all;
}

const std::map<std::string, Environment>& Environments() {
  static const auto& all = *new std::map<std::string, Environment>(ReadEnvironments());
  return all;
}

absl::StatusOr<ClusterEnvironment> Detect(const Environment& environment) {
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.variables.find(name);
    if (found == environment.variables.end()) return std::nullopt;
    return absl::StrReplaceAll(found->second, {{"\\n", "\n"}});
  };
  const FileLookup read_file = [&](const std::string& path) { return lookup("@file:" + path).value_or(""); };
  std::optional<PortRange> ports;
  if (const auto range = lookup("@port_range"); range.has_value()) {
    const std::vector<std::string> ends = absl::StrSplit(*range, '-');
    ports = PortRange{std::stoi(ends.at(0)), std::stoi(ends.at(1))};
  }
  return DetectCluster(lookup, ports, lookup("@full_name").value_or(""), read_file);
}

std::string Text(int value) { return absl::StrCat(value); }
std::string Text(const std::string& value) { return value; }
std::string Text(const Endpoint& value) { return value.ToString(); }

template <typename T>
std::string Value(const std::optional<Found<T>>& found, const char* name = "") {
  return found.has_value() ? absl::StrCat(name, Text(found->value), " (", found->source, ")") : "";
}

std::string Hosts(const std::vector<std::string>& hosts) {
  if (hosts.size() <= 8) return absl::StrJoin(hosts, " ");
  return absl::StrCat(hosts.front(), " ", hosts[1], " ... ", hosts.back(), "  (", hosts.size(), ")");
}

Settings Render(const absl::StatusOr<ClusterEnvironment>& found) {
  if (!found.ok()) return {{"error", std::string(found.status().message())}};
  if (found->starter == ClusterEnvironment::Starter::kNone) return {{"what", "nothing"}};
  const ClusterEnvironment& s = *found;
  const std::string node =
      absl::StrCat(Value(s.node_index, "index "), Value(s.host, ", host "), Value(s.topology, ", topology "));
  Settings settings = {{"what", s.description},
                       {"nnodes", Value(s.nnodes)},
                       {"node", std::string(absl::StripPrefix(node, ", "))},
                       {"gpus", Value(s.gpus)},
                       {"endpoint", Value(s.endpoint)},
                       {"job_id", Value(s.job_id)},
                       {"hosts", Hosts(s.hosts)},
                       {"endpoint_appears_late", s.endpoint_appears_late ? "yes" : ""},
                       {"gpu_binding", s.gpu_binding},
                       {"obstacle", s.obstacle},
                       {"remedy", s.remedy},
                       {"notes", absl::StrJoin(s.notes, " | ")}};
  if (s.batch.has_value()) {
    std::string& batch = settings["batch"] = absl::StrCat("job ", s.batch->job);
    if (s.batch->signals_every_process) absl::StrAppend(&batch, ", signals every process");
    if (s.batch->restart_count > 0) absl::StrAppend(&batch, ", restart ", s.batch->restart_count);
    if (s.batch->end_time.has_value()) absl::StrAppend(&batch, ", ends at ", absl::ToUnixSeconds(*s.batch->end_time));
  }
  std::erase_if(settings, [](const auto& setting) { return setting.second.empty(); });
  return settings;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, environment] : Environments()) names.push_back(name);
  return names;
}

// Returns the lines to add to a section with @like=BASE so that it has `found`, where `base` are the settings of BASE.
std::string Difference(const Settings& found, Settings base) {
  if (found.count("error") != base.count("error")) base.clear();
  std::string text;
  for (const auto& [name, value] : found) {
    if (base.count(name) == 0 || base[name] != value) absl::StrAppend(&text, "> ", name, ": ", value, "\n");
  }
  for (const auto& [name, value] : base) {
    if (found.count(name) == 0) absl::StrAppend(&text, "> -", name, "\n");
  }
  return text;
}

// Returns the text of a file with the results that are found now.
std::string Rewritten(const std::string& file) {
  std::string text;
  for (const std::string& line : Lines(absl::StrCat(kFolder, "/", file))) {
    const std::string name = SectionName(line);
    if (name.empty()) continue;
    const Environment& environment = Environments().at(name);
    const std::string& like = environment.like;
    absl::StrAppend(
        &text, text.empty() ? "" : "\n", line, "\n", environment.comment,
        like.empty() ? "" : absl::StrCat("@like=", like, "\n"),
        Difference(Render(Detect(environment)), like.empty() ? Settings() : Render(Detect(Environments().at(like)))),
        environment.own_lines);
  }
  return text;
}

class EnvironmentTest : public testing::TestWithParam<std::string> {};

TEST_P(EnvironmentTest, DetectCluster_RecordedEnvironment_HasTheExpectedResult) {
  const Environment& environment = Environments().at(GetParam());
  EXPECT_EQ(Render(Detect(environment)), environment.expected);
  EXPECT_NE(environment.comment, "") << "say what it is";
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
    const absl::StatusOr<ClusterEnvironment> found = Detect(Environments().at(name));
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
      topologies.insert(node.topology->value);
      if (node.hosts.empty()) continue;
      EXPECT_EQ(node.hosts[node.node_index->value], node.host->value) << name;
      EXPECT_EQ(node.endpoint->value.host, node.hosts.front()) << name;
    }
    EXPECT_EQ(topologies.size(), nodes.size()) << name;
  }
}

TEST(Environments, Files_AreWrittenAsRewritten) {
  const char* const folder = std::getenv("DDPRUN_REWRITE_ENVIRONMENTS");
  for (const std::string& file : FileNames()) {
    const std::string text = Rewritten(file);
    if (folder != nullptr) std::ofstream(absl::StrCat(folder, "/", file)) << text;
    EXPECT_EQ(text, absl::StrCat(absl::StrJoin(Lines(absl::StrCat(kFolder, "/", file)), "\n"), "\n")) << file;
  }
}

TEST(Environments, Files_HaveManySections) { EXPECT_GE(Names().size(), 60u); }

}  // namespace
}  // namespace ddprun::launcher
