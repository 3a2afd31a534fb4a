// docs/from_torchrun.md has every flag of ddprun and torchrun. (scripts/check finds the tests that it names.)
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

}  // namespace
}  // namespace ddprun::testing
