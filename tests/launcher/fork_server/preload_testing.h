#ifndef DDPRUN_TESTS_LAUNCHER_FORK_SERVER_PRELOAD_TESTING_H_
#define DDPRUN_TESTS_LAUNCHER_FORK_SERVER_PRELOAD_TESTING_H_

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {

inline constexpr char kForked[] = "fork server ";

struct Result {
  int code;
  std::string out;  // sorted lines, as workers write concurrently
  std::string err;  // without times and process ids
};

inline std::string SortedLines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

// Removes the differences between two runs of the same job.
inline std::string WithoutNumbers(std::string text) {
  static const std::pair<std::regex, const char*> kVarying[] = {
      {std::regex("\\d{4}-\\d\\d-\\d\\d[T_]\\d\\d:\\d\\d:\\d\\d(\\.\\d+Z)?"), "TIME"},
      {std::regex("(pid:?|PID) \\d+"), "PID"},
      {std::regex("0x[0-9a-f]+"), "ADDRESS"},
      {std::regex("ran for +: [^\n]*"), "ran for"},
      {std::regex("error_file: [^\n]*"), "FILE"},
      {std::regex("[^\n]*--preload[^\n]*\n"), ""},
      // The outermost frames of a forked worker are the fork server's.
      {std::regex(" +File \"<stdin>\", line \\d+ in <module>\n"), ""},
      {std::regex("\n([a-z(])"), " $1"},  // where the summary's reason is broken depends on the length of numbers
      {std::regex("    Native stack[^\n]*\n( +#[^\n]*\n)*"), ""},
  };
  for (const auto& [varying, name] : kVarying) text = std::regex_replace(text, varying, name);
  return text;
}

// The module appends a line to a file when imported: the importer, and whether the rank was known.
inline constexpr char kNotes[] = R"(
import os
with open(os.path.join(os.path.dirname(__file__), "imports"), "a") as file:
    file.write("imported\n")
)";

class PreloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    python_ = VenvPython().empty() ? "python3" : VenvPython();
    // Outside the scripts' folder, so that the modules count as installed.
    mkdir(Installed("").c_str(), 0700);
  }

  std::string Installed(const std::string& name) const { return absl::StrCat(folder_.File("installed/"), name); }

  static void Write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }
  std::string Script(const std::string& text, const std::string& name = "script.py") const {
    Write(folder_.File(name), text);
    return folder_.File(name);
  }

  std::map<std::string, std::string> Environment() const {
    return {{"PYTHON_EXEC", python_},
            {"PYTHONPATH", Installed("")},
            {"LOGLEVEL", "INFO"},
            {"PYTHONDONTWRITEBYTECODE", "1"},
            {"PET_PRELOAD", ""}};
  }
  static std::vector<std::string> Flags(std::vector<std::string> more, std::vector<std::string> script) {
    std::vector<std::string> flags = {"--standalone", "--rdzv-id=job"};
    for (std::vector<std::string>* words : {&more, &script}) flags.insert(flags.end(), words->begin(), words->end());
    return flags;
  }
  Result Run(std::vector<std::string> flags, std::vector<std::string> script, bool* forked = nullptr) const {
    Launcher launcher(Flags(std::move(flags), std::move(script)), Environment());
    const int code = launcher.Wait();
    if (forked != nullptr) *forked = Count(launcher.Err(), kForked) > 0;
    // Only the workers' output and the summary are compared, not the log, whose lines may be inside those of a worker
    // that writes a line in pieces.
    static const std::regex log_line("[0-9-]+T[0-9:.]+Z (INFO|WARNING) [^\n]*\n");
    return {code, SortedLines(launcher.Out()), WithoutNumbers(std::regex_replace(launcher.Err(), log_line, ""))};
  }
  // Runs the job with and without --preload and compares.
  void ExpectAlike(const std::vector<std::string>& flags, const std::vector<std::string>& script,
                   const std::string& modules = "json,decimal") const {
    std::vector<std::string> with = flags, without = flags;
    with.push_back("--preload=" + modules);
    without.push_back("--preload=none");
    bool forked = false;
    const Result forked_result = Run(with, script, &forked);
    const Result started = Run(without, script);
    EXPECT_TRUE(forked);
    EXPECT_EQ(forked_result.code, started.code);
    EXPECT_EQ(forked_result.out, started.out);
    EXPECT_EQ(forked_result.err, started.err);
  }

  TempDir folder_;
  std::string python_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_FORK_SERVER_PRELOAD_TESTING_H_
