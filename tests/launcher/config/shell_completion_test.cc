#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/config/flag_table.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

class CompletionTest : public ::testing::Test {
 protected:
  // Returns the path of the written script.
  std::string Write(const std::string& shell) const {
    const std::string path = dir_.File(shell);
    std::ofstream(path) << CompletionScript(shell).value();
    return path;
  }
  // Returns bash's candidates for the last of `words`.
  std::string Bash(const std::string& words) const {
    testing::Process bash(
        {"/bin/bash", "-euc",
         absl::StrCat("source ", Write("bash"), "; cd ", dir_.path(), "; touch train.py; COMP_WORDS=(", words,
                      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ddprun; ", "echo \"${COMPREPLY[@]-}\"")});
    EXPECT_EQ(bash.Wait(), 0) << bash.Err();
    EXPECT_EQ(bash.Err(), "");
    const std::string out = bash.Out();
    return out.substr(0, out.size() - 1);
  }
  static bool Has(const std::string& program) {
    testing::Process which({"/bin/sh", "-c", absl::StrCat("command -v ", program)});
    return which.Wait() == 0;
  }

  const testing::TempDir dir_;
};

TEST_F(CompletionTest, EveryShell_HasEveryFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = *CompletionScript(shell);
    for (const Flag& flag : Flags()) {
      EXPECT_TRUE(absl::StrContains(script, absl::StrCat(shell == std::string("fish") ? "-l " : "--", flag.name)))
          << shell << " " << flag.name;
    }
  }
  EXPECT_EQ(CompletionScript("tcsh").status().message(), "--print-completion: 'tcsh' is not bash, zsh or fish");
}

TEST_F(CompletionTest, EveryShell_AcceptsTheScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    if (!Has(shell)) continue;  // only bash is always installed
    testing::Process check({"/usr/bin/env", shell, "-n", Write(shell)});
    EXPECT_EQ(check.Wait(), 0) << check.Err();
    EXPECT_EQ(check.Err(), "");
  }
}

TEST_F(CompletionTest, Bash_CompletesFlagsAndValues) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--nn", "--nnodes"},
      {"--standalone --nproc", "--nproc-per-node"},
      {"--nnodes 2 --rdzv-b", "--rdzv-backend"},
      {"--nnodes = 2 --rdzv-b", "--rdzv-backend"},
      {"--nproc-per-node ''", "cpu gpu xpu hpu npu auto"},
      {"--nproc-per-node = g", "gpu"},
      {"--nproc-per-node =", "cpu gpu xpu hpu npu auto"},
      {"--rdzv-backend st", "static"},
      {"--on-hang re", "report restart"},
      {"--tls-key tr", "train.py"},
      {"--nnodes tr", ""},  // a number
      {"--standalone tr", "train.py"},
      {"--preload train.py --nn", ""},     // --preload may stand alone
      {"--standalone other.py --nn", ""},  // a flag of the script
      {"--standalone other.py tr", "train.py"},
  };
  for (const auto& [words, candidates] : kCases) EXPECT_EQ(Bash(absl::StrCat("ddprun ", words)), candidates) << words;
}

}  // namespace
}  // namespace ddprun::launcher
