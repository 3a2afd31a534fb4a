#include "launcher/subcommand.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/capsule/capsule_folder.h"
#include "launcher/capsule/explain.h"
#include "launcher/config/flag_table.h"
#include "launcher/config/parse_options.h"
#include "launcher/process/python_environment.h"
#include "launcher/process/resolve_program.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

// The program that is called in the place of torchrun.
constexpr char kProgramVariable[] = "DDPRUN_PROGRAM";

constexpr char kExecForm[] = "ddprun exec [FLAGS] -- COMMAND [ARGUMENTS]";
constexpr char kExecUsage[] =
    "Usage: ddprun exec [FLAGS] -- COMMAND [ARGUMENTS]\n\n"
    "Runs COMMAND. In its process tree, torchrun, python -m torch.distributed.run, and the functions of\n"
    "torch.distributed.run and torch.distributed.launcher are ddprun's. Nothing is changed on disk.\n"
    "FLAGS are ddprun's (ddprun --help). What COMMAND gives its launcher itself takes precedence. Example:\n"
    "  ddprun exec --preload -- accelerate launch --num_processes 4 train.py\n";
constexpr char kExplainUsage[] =
    "Usage: ddprun explain [CAPSULE]\n\n"
    "Shows how a job failed: the first cause, what happened on all nodes, the end of each rank.\n"
    "CAPSULE is a folder of LOG_DIR/capsules; LOG_DIR, or without it the current folder, stands for the newest one\n"
    "(docs/capsules.md).\n";
// Flags of the command line that names the script or the hosts.
constexpr char kOnOneHost[] = "COMMAND runs on this host only; see ddprun --hosts=... SCRIPT";
constexpr char kOfTheScript[] = "COMMAND tells its launcher what the script is";
constexpr struct {
  absl::string_view flag;
  const char* reason;
} kNotForExec[] = {
    {"hosts", kOnOneHost},       {"env", kOnOneHost},
    {"detach", kOnOneHost},      {"module", kOfTheScript},
    {"no-python", kOfTheScript}, {"show-config", "COMMAND may give more settings; see ddprun --show-config"},
};

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

absl::Status SetVariables(const ParsedOptions& flags) {
  for (const auto& [flag, value] : flags.given) {
    for (const auto& [name, reason] : kNotForExec) {
      if (flag == name) return absl::InvalidArgumentError(absl::StrCat("exec does not take --", flag, ": ", reason));
    }
    setenv(PetVariable(flag).c_str(), value.c_str(), 1);
  }
  return absl::OkStatus();
}

int Exec(const Words& words) {
  if (!words.empty() && (words.front() == "-h" || words.front() == "--help")) {
    fputs(kExecUsage, stdout);
    return 0;
  }
  const bool has_flags = !words.empty() && absl::StartsWith(words.front(), "-");
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const Words command(!has_flags ? words.begin() : dashes == words.end() ? dashes : dashes + 1, words.end());
  const absl::StatusOr<ParseResult> flags = ParseFlags(words);
  if (!flags.ok()) return Fail(flags.status().message(), worker_contract::kExitUsage);
  if (const auto* info = std::get_if<InfoText>(&*flags)) {
    fputs(info->text.c_str(), stdout);
    return 0;
  }
  const auto& parsed = std::get<ParsedOptions>(*flags);
  if (absl::Status status = SetVariables(parsed); !status.ok()) {
    return Fail(status.message(), worker_contract::kExitUsage);
  }
  if (parsed.options.script.size() != command.size()) {
    return Fail(absl::StrCat("-- must stand between the flags and the command: ", kExecForm),
                worker_contract::kExitUsage);
  }
  if (command.empty() || command.front().empty()) {
    return Fail(absl::StrCat("no command to run: ", kExecForm), worker_contract::kExitUsage);
  }
  const absl::StatusOr<std::string> package = FindPackage();
  if (!package.ok()) return Fail(package.status().message(), worker_contract::kExitFailed);
  if (package->find(':') != std::string::npos) {
    return Fail(absl::StrCat(*package, " can't be a part of PATH, because it has a colon; install ddprun elsewhere"),
                worker_contract::kExitFailed);
  }
  Prepend(absl::StrCat(*package, "/in_place/bin"), "PATH", SearchPath());
  Prepend(absl::StrCat(*package, "/in_place/site"), "PYTHONPATH", "");
  return Replace(command);
}

int Explain(const Words& words) {
  if (!words.empty() && (words.front() == "-h" || words.front() == "--help")) {
    fputs(kExplainUsage, stdout);
    return 0;
  }
  if (words.size() > 1) return Fail("explain takes one folder: ddprun explain [CAPSULE]", worker_contract::kExitUsage);
  const absl::StatusOr<std::string> folder = FindCapsule(words.empty() ? "." : words.front());
  if (!folder.ok()) return Fail(folder.status().message(), worker_contract::kExitUsage);
  absl::StatusOr<std::vector<capsule::v1::Node>> nodes = ReadCapsule(*folder);
  if (!nodes.ok()) return Fail(nodes.status().message(), worker_contract::kExitUsage);
  fputs(absl::StrCat(*folder, "\n", ExplainCapsule(*std::move(nodes), absl::LocalTimeZone())).c_str(), stdout);
  return 0;
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
  if (arguments.front() == "explain") return Explain(rest);
  if (arguments.front() == "install-torchrun") return InstallTorchrun(rest, python);
  return std::nullopt;
}

}  // namespace ddprun::launcher
