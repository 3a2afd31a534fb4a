#ifndef DDPRUN_TESTS_HANG_HANG_CASE_H_
#define DDPRUN_TESTS_HANG_HANG_CASE_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {

inline constexpr char kHangWords[] = "no progress for ";

// A bug of a trainer, which its variable HANG names.
struct Hang {
  std::string name;
  std::vector<std::string> words;  // in the line that names it, first the rank at fault
  std::map<std::string, std::string> environment = {};
  std::string native = "";  // further words, if there is a native stack; a busy machine may leave no time for it
  int ranks = 3;
};
inline void PrintTo(const Hang& hang, std::ostream* out) { *out << hang.name; }

inline std::string NameOf(const ::testing::TestParamInfo<Hang>& info) {
  const auto model = info.param.environment.find("MODEL");
  return absl::StrCat(info.param.name, model != info.param.environment.end() ? "_" + model->second : "");
}

// A trainer's arguments, after flags with a short limit; DDPRUN_HANG_LIMIT=default leaves the one that users have.
inline std::vector<std::string> HangFlags(std::vector<std::string> flags, const std::vector<std::string>& trainer) {
  const char* limit = getenv("DDPRUN_HANG_LIMIT");
  if (limit == nullptr || std::string(limit) != "default") flags.push_back("--on-hang=report:4");
  flags.insert(flags.end(), trainer.begin(), trainer.end());
  return flags;
}

// The line that names the hang; fails if the launcher does not print one.
inline std::string HangLine(Launcher& launcher) {
  EXPECT_TRUE(launcher.WaitForErr(kHangWords)) << launcher.Err();
  const std::string err = launcher.Err();
  for (const absl::string_view line : absl::StrSplit(err, '\n')) {
    if (absl::StrContains(line, kHangWords)) return std::string(line);
  }
  return "";
}

// Fails if the line that names the hang lacks one of its words. First waits until the trainer has printed "step 10": a
// busy machine may need long until then.
inline void ExpectNamed(const Hang& hang, const std::vector<std::string>& flags,
                        std::map<std::string, std::string> environment) {
  environment["HANG"] = hang.name;
  environment["OMP_NUM_THREADS"] = "1";
  environment.insert(hang.environment.begin(), hang.environment.end());
  Launcher launcher(flags, std::move(environment));
  EXPECT_TRUE(launcher.WaitForOut("step 10")) << launcher.Err();
  const std::string line = HangLine(launcher);
  for (const std::string& word : hang.words) EXPECT_THAT(line, HasSubstr(word)) << launcher.Err();
  const std::string err = launcher.Err();
  const size_t stack = err.find('\n', err.find("\n    rank 1, pid ") + 1);
  if (stack != err.npos && err.compare(stack, 8, "\n      #") == 0) {
    EXPECT_THAT(line, HasSubstr(hang.native)) << err;
  }
  launcher.Signal(SIGKILL);
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_HANG_HANG_CASE_H_
