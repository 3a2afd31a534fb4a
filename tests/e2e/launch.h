#ifndef DDPRUN_TESTS_E2E_LAUNCH_H_
#define DDPRUN_TESTS_E2E_LAUNCH_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"

namespace ddprun::testing {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A launcher process with these arguments.
class Launcher : public Process {
 public:
  explicit Launcher(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {})
      : Process(Command("launcher/ddprun", std::move(arguments)), std::move(environment)) {}

  static std::vector<std::string> Command(const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    return arguments;
  }
};

// A launcher that has ended; fails the test if its exit code is not `code`.
class Finished : public Launcher {
 public:
  Finished(int code, std::vector<std::string> arguments, std::map<std::string, std::string> environment = {},
           std::source_location at = std::source_location::current())
      : Launcher(std::move(arguments), std::move(environment)) {
    ::testing::ScopedTrace trace(at.file_name(), static_cast<int>(at.line()), "");
    EXPECT_EQ(Wait(), code) << Err();
  }
};

// Waits for the processes and expects this exit code of each.
inline void ExpectEnd(std::initializer_list<Process*> processes, int code = 0,
                      std::source_location at = std::source_location::current()) {
  ::testing::ScopedTrace trace(at.file_name(), static_cast<int>(at.line()), "");
  for (Process* process : processes) EXPECT_EQ(process->Wait(), code) << process->Err();
}

// A separate rendezvous server on this port, so that any launcher may be killed.
class Rendezvousd : public Process {
 public:
  explicit Rendezvousd(int port, std::vector<std::string> more = {},
                       std::map<std::string, std::string> environment = {})
      : Process(Command(port, std::move(more)), std::move(environment)) {
    EXPECT_TRUE(WaitForOut("listening")) << Err();
  }

  static std::vector<std::string> Command(int port, std::vector<std::string> more) {
    more.insert(more.begin(), {"rendezvous/daemon/rendezvousd", absl::StrCat("--listen=127.0.0.1:", port)});
    return more;
  }
};

// The flags, then the shell worker `script` (run by sh -c).
inline std::vector<std::string> WithShell(std::vector<std::string> flags, const std::string& script) {
  flags.insert(flags.end(), {"--no-python", "sh", "-c", script});
  return flags;
}

// One node of a job with shell workers.
inline std::vector<std::string> NodeFlags(int port, const std::string& nnodes, int slots, std::vector<std::string> more,
                                          const std::string& script) {
  more.insert(more.begin(), {"--nnodes", nnodes, absl::StrCat("--nproc-per-node=", slots),
                             absl::StrCat("--rdzv-endpoint=127.0.0.1:", port), "--rdzv-id=job"});
  return WithShell(std::move(more), script);
}

inline std::vector<std::string> Standalone(int slots, std::vector<std::string> more, const std::string& script) {
  more.insert(more.begin(), {"--standalone", absl::StrCat("--nproc-per-node=", slots)});
  return WithShell(std::move(more), script);
}

// Launchers of one node, whose workers are a Python program that the test writes.
class PythonWorkersTest : public ::testing::Test {
 protected:
  // Writes the program, which begins with `head_`, and returns its path.
  std::string Script(const std::string& text) const {
    std::ofstream(dir_.File("train.py")) << head_ << text;
    return dir_.File("train.py");
  }
  std::vector<std::string> Flags(int slots, std::vector<std::string> more, const std::string& script) const {
    more.insert(more.begin(), {"--standalone", absl::StrCat("--nproc-per-node=", slots)});
    more.push_back(Script(script));
    return more;
  }
  Launcher Start(int slots, std::vector<std::string> more, const std::string& script) const {
    return Launcher(Flags(slots, std::move(more), script), environment_);
  }
  Finished Run(int code, int slots, std::vector<std::string> more, const std::string& script,
               std::source_location at = std::source_location::current()) const {
    return Finished(code, Flags(slots, std::move(more), script), environment_, at);
  }

  const TempDir dir_;
  std::string head_;
  std::map<std::string, std::string> environment_ = {{"PYTHON_EXEC", "python3"},
                                                     {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}};
};

// Prints the worker's ranks as one write, so that lines of several workers do not mix.
inline constexpr char kSayRank[] =
    "echo \"rank=$RANK/$WORLD_SIZE local=$LOCAL_RANK/$LOCAL_WORLD_SIZE group=$GROUP_RANK/$GROUP_WORLD_SIZE "
    "attempt=$TORCHELASTIC_RESTART_COUNT round=$DDPRUN_ROUND pid=$$ .\"; ";

inline int Count(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

// Waits until the processes' output has `text` `count` times in all.
inline ::testing::AssertionResult AllSay(std::initializer_list<Process*> processes, const std::string& text,
                                         int count) {
  std::string out, err;
  const bool said = Eventually([&] {
    out.clear();
    for (Process* process : processes) out += process->Out();
    return Count(out, text) == count;
  });
  if (said) return ::testing::AssertionSuccess();
  for (Process* process : processes) err += process->Err();
  return ::testing::AssertionFailure() << "not " << count << " times \"" << text << "\" in\n" << out << err;
}

inline void Touch(const std::string& path) { fclose(fopen(path.c_str(), "w")); }

inline int Lines(const std::string& text) { return Count(text, "\n"); }

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_LAUNCH_H_
