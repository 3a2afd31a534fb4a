// docs/from_torchrun.md has every flag of ddprun and torchrun. (scripts/check finds the tests that it
// names.) Flags that only ddprun has are few, and the documents show a command that uses each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/config/flag_table.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

// torchrun 2.15.
constexpr const char* kTorchrunsFlags[] = {"nnodes",
                                           "nproc-per-node",
                                           "rdzv-backend",
                                           "rdzv-endpoint",
                                           "rdzv-id",
                                           "rdzv-conf",
                                           "standalone",
                                           "max-restarts",
                                           "monitor-interval",
                                           "start-method",
                                           "event-log-handler",
                                           "role",
                                           "module",
                                           "no-python",
                                           "run-path",
                                           "log-dir",
                                           "redirects",
                                           "tee",
                                           "log-line-prefix-template",
                                           "local-ranks-filter",
                                           "duplicate-stdout-filters",
                                           "duplicate-stderr-filters",
                                           "node-rank",
                                           "master-addr",
                                           "master-port",
                                           "local-addr",
                                           "logs-specs",
                                           "numa-binding",
                                           "signals-to-handle",
                                           "shutdown-timeout",
                                           "virtual-local-rank",
                                           "print-completion",
                                           "help"};

TEST(FromTorchrunTest, NamesEveryFlag) {
  const std::string document = ReadFile("docs/from_torchrun.md");
  ASSERT_FALSE(document.empty());
  const auto expect = [&](const std::string& flag) {
    EXPECT_TRUE(absl::StrContains(document, absl::StrCat("`--", flag, "`"))) << flag;
  };
  for (const char* flag : kTorchrunsFlags) expect(flag);
  for (const launcher::Flag& flag : launcher::Flags()) expect(flag.name);
}

// The indented lines of all documents: commands and their output.
std::string Examples() {
  std::string examples;
  for (const auto& file : std::filesystem::directory_iterator("docs")) {
    if (file.path().extension() != ".md") continue;
    const std::string document = ReadFile(file.path().string());
    for (const absl::string_view line : absl::StrSplit(document, '\n')) {
      if (absl::StartsWith(line, "    ")) absl::StrAppend(&examples, line, "\n");
    }
  }
  return examples;
}

TEST(FromTorchrunTest, OwnFlags_AreFewAndShownInUse) {
  constexpr int kMostOwnFlags = 15;
  const std::string examples = Examples();
  int own = 0;
  for (const launcher::Flag& flag : launcher::Flags()) {
    if (std::find(std::begin(kTorchrunsFlags), std::end(kTorchrunsFlags), absl::string_view(flag.name)) !=
        std::end(kTorchrunsFlags)) {
      continue;
    }
    ++own;
    EXPECT_TRUE(absl::StrContains(examples, absl::StrCat(" --", flag.name))) << flag.name;
  }
  EXPECT_LE(own, kMostOwnFlags) << "see docs/architecture.md, To add X, touch Y";
}

}  // namespace
}  // namespace ddprun::testing
