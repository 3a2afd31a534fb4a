#include "launcher/subcommand.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/os/python_environment.h"
#include "launcher/os/python_package.h"
#include "launcher/os/resolve_program.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

// The program that is called in the place of torchrun.
constexpr char kProgramVariable[] = "DDPRUN_PROGRAM";

constexpr char kExecUsage[] =
    "Usage: ddprun exec [--] COMMAND [ARGUMENTS]\n\n"
    "Runs COMMAND. In its process tree, torchrun, python -m torch.distributed.run, and the functions of\n"
    "torch.distributed.run and torch.distributed.launcher are ddprun's. Nothing is changed on disk. Example:\n"
    "  ddprun exec -- accelerate launch --num_processes 4 train.py\n";

int Fail(absl::string_view message, int code) {
  Log(LogLevel::kError, message);
  return code;
}

// Puts `folder` in front of the list in this variable, unless it is there already. `if_unset`: the list that an unset
// variable stands for.
void Prepend(const std::string& folder, const char* variable, const std::string& if_unset) {
  const char* const value = getenv(variable);
  const std::string list = value == nullptr ? if_unset : value;
  if (list == folder || absl::StartsWith(list, folder + ":")) return;
  setenv(variable, list.empty() ? folder.c_str() : absl::StrCat(folder, ":", list).c_str(), 1);
}

int Replace(const Words& words) {
  const absl::StatusOr<std::string> program = ResolveProgram(words.front(), SearchPath());
  if (!program.ok()) return Fail(program.status().message(), ExitCodeOfStartError(program.status()));
  Words copy = words;
  std::vector<char*> argv;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program->c_str(), argv.data());
  const absl::Status status = ExplainExecError(*program, errno);
  return Fail(status.message(), ExitCodeOfStartError(status));
}

// Returns the package's folder, and tells it which program it belongs to.
absl::StatusOr<std::string> FindPackage() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("/proc/self/exe: ", error.message()));
  setenv(kProgramVariable, program.c_str(), 1);
  return PythonPackage();
}

int Exec(Words words) {
  if (!words.empty() && (words.front() == "-h" || words.front() == "--help")) {
    fputs(kExecUsage, stdout);
    return 0;
  }
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && absl::StartsWith(words.front(), "-")) {
    return Fail(absl::StrCat("exec has no flags, but ", words.front(), " follows: ddprun exec -- COMMAND [ARGUMENTS]"),
                worker_contract::kExitUsage);
  }
  if (words.empty() || words.front().empty()) {
    return Fail("no command to run: ddprun exec -- COMMAND [ARGUMENTS]", worker_contract::kExitUsage);
  }
  const absl::StatusOr<std::string> package = FindPackage();
  if (!package.ok()) return Fail(package.status().message(), worker_contract::kExitFailed);
  if (package->find(':') != std::string::npos) {
    return Fail(absl::StrCat(*package, " can't be a part of PATH, because it has a colon; install ddprun elsewhere"),
                worker_contract::kExitFailed);
  }
  Prepend(absl::StrCat(*package, "/in_place/bin"), "PATH", SearchPath());
  Prepend(absl::StrCat(*package, "/in_place/site"), "PYTHONPATH", "");
  return Replace(words);
}

int InstallTorchrun(const Words& words, const PythonFacts& facts) {
  const absl::StatusOr<std::string> package = FindPackage();
  if (!package.ok()) return Fail(package.status().message(), worker_contract::kExitFailed);
  absl::StatusOr<PythonChoice> choice = ChoosePython(facts);
  if (!choice.ok()) return Fail(choice.status().message(), worker_contract::kExitUsage);
  std::string python = FirstProgram(choice->programs, SearchPath());
  if (python.empty()) python = choice->programs.front();  // Replace explains what is wrong with it
  Words command = {std::move(python)};
  command.insert(command.end(), choice->arguments.begin(), choice->arguments.end());
  command.push_back(absl::StrCat(*package, "/install_torchrun.py"));
  command.insert(command.end(), words.begin(), words.end());
  return Replace(command);
}

}  // namespace

std::optional<int> RunSubcommand(const Words& arguments, const PythonFacts& python) {
  if (arguments.empty()) return std::nullopt;
  const Words rest(arguments.begin() + 1, arguments.end());
  if (arguments.front() == "exec") return Exec(rest);
  if (arguments.front() == "install-torchrun") return InstallTorchrun(rest, python);
  return std::nullopt;
}

}  // namespace ddprun::launcher
