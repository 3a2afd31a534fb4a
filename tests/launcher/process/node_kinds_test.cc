// Kinds of node: tests/launcher/process/nodes/*.txt, one each, with the files of /dev, /sys and /proc that show its
// accelerators, reduced to what is read.
//
// "#": the node, and where the form of its files is documented. "PATH = CONTENT": a file ("\n" and so on are escapes).
// "$ VARIABLE=VALUE ... --FLAG ...": a launcher's environment and flags. "> TEXT": what --show-config says there about
// the devices, or the error; "[VARIABLE]": what --virtual-local-rank sets.
//
// With DDPRUN_REWRITE_NODES=$PWD/tests/launcher/process/nodes this program rewrites the ">" lines; then review the
// difference.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"
#include "launcher/config/show_config.h"
#include "launcher/process/hardware.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

constexpr char kFolder[] = "tests/launcher/process/nodes";

// Lines of --show-config about devices, with single blanks.
std::vector<std::string> ShownBy(const std::string& root, const std::string& command) {
  std::map<std::string, std::string> variables;
  std::vector<std::string> flags;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(command, ' '))) {
    const std::pair<std::string, std::string> variable = absl::StrSplit(word, absl::MaxSplits('=', 1));
    std::string value;
    EXPECT_TRUE(absl::CUnescape(variable.second, &value)) << word;
    if (absl::StartsWith(word, "--"))
      flags.push_back(word);
    else
      variables[variable.first] = value;
  }
  HostFacts facts{.random_id = "fresh"};
  facts.devices = InspectDevices(root, [&](const std::string& name) {
    return variables.contains(name) ? std::make_optional(variables[name]) : std::nullopt;
  });
  std::vector<int> cpus;
  for (int node = 0; node < 4; ++node) {
    std::ifstream file(absl::StrCat(root, "/sys/devices/system/node/node", node, "/cpulist"));
    std::string list;
    std::getline(file, list);
    const std::optional<std::vector<int>> of_node = ParseCpuList(list);
    if (of_node) cpus.insert(cpus.end(), of_node->begin(), of_node->end());
  }
  if (cpus.empty()) cpus = {0, 1};
  facts.cpus = static_cast<int>(cpus.size());
  facts.topology = ReadCpuTopologyIn(root, cpus);
  flags.push_back("--show-config");
  absl::StatusOr<ParseResult> parsed = ParseOptions(flags, [](const std::string&) { return std::nullopt; });
  if (!parsed.ok()) return {std::string(parsed.status().message())};
  const auto& [options, origins, given] = std::get<ParsedOptions>(*parsed);
  const absl::StatusOr<LaunchConfig> config = Resolve(options, facts);
  if (!config.ok()) return {std::string(config.status().message())};
  std::vector<std::string> shown;
  const std::vector<std::string> lines = absl::StrSplit(ShowConfig(*config, origins, absl::UTCTimeZone()), '\n');
  for (const std::string& line : lines) {
    for (const char* setting : {"nproc-per-node ", "accelerators ", "numa-binding ", "virtual-local-rank ", "note: "}) {
      if (!absl::StartsWith(line, setting)) continue;
      shown.push_back(absl::StrJoin(absl::StrSplit(line, ' ', absl::SkipEmpty()), " "));
    }
  }
  if (options.virtual_local_rank) {
    shown.push_back(absl::StrCat("[", absl::StrJoin(config->accelerators.variables, "] ["), "]"));
  }
  return shown;
}

TEST(NodeKinds, EveryKind_DevicesAreCountedNamedAndBound) {
  const char* const rewritten = getenv("DDPRUN_REWRITE_NODES");
  int kinds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    const testing::TempDir root;
    std::string text, commands;
    std::vector<std::string> expected, got;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (absl::StartsWith(line, "> ")) {
        expected.push_back(line);
        continue;
      }
      if (absl::StartsWith(line, "$ ")) {
        expected.push_back(line);
        got.push_back(line);
        for (const std::string& shown : ShownBy(root.path(), line.substr(2))) got.push_back(absl::StrCat("> ", shown));
        continue;
      }
      absl::StrAppend(&text, line, "\n");
      if (line.empty() || line[0] == '#') continue;
      const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(" =", 1));
      std::string content;
      ASSERT_TRUE(absl::CUnescape(parts.second, &content)) << line;
      const std::filesystem::path path = root.File(parts.first);
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << content.substr(content.empty() ? 0 : 1) << "\n";
    }
    EXPECT_EQ(absl::StrJoin(expected, "\n"), absl::StrJoin(got, "\n"));
    if (rewritten != nullptr)
      std::ofstream(absl::StrCat(rewritten, "/", name)) << text << absl::StrJoin(got, "\n") << "\n";
    ++kinds;
  }
  EXPECT_GE(kinds, 10);
}

}  // namespace
}  // namespace ddprun::launcher
