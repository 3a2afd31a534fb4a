#include "launcher/interpreter.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/os/python_environment.h"
#include "launcher/os/resolve_program.h"

namespace ddprun::launcher {
namespace {

constexpr char kPackage[] = "torch";
// Only this part of a script is searched for imports.
constexpr size_t kHeadBytes = 64 * 1024;

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool Mentions(const std::string& file, absl::string_view word) {
  std::ifstream in(file);
  std::string head(kHeadBytes, '\0');
  in.read(head.data(), head.size());
  head.resize(in.gcount());
  return absl::StrContains(head, word);
}

// Without an error file the worker's message is unknown, so the script itself is checked.
bool MayMissPackage(const LaunchConfig& config, const rendezvous::WorkerFailure& cause) {
  if (cause.rank() < 0 || cause.exit_code() != 1) return false;
  if (!cause.message().empty()) return absl::StrContains(cause.message(), absl::StrCat("No module named '", kPackage));
  return !config.command.script.empty() && Mentions(config.command.script, kPackage);
}

bool PythonPathHas(absl::string_view name) {
  for (const absl::string_view folder : absl::StrSplit(Variable("PYTHONPATH"), ':', absl::SkipEmpty())) {
    if (access(absl::StrCat(folder, "/", name).c_str(), F_OK) == 0) return true;
  }
  return false;
}

std::vector<std::string> OtherPythons(const LaunchConfig& config) {
  std::vector<std::string> all = config.command.programs;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string folder = Variable(variable); !folder.empty()) {
      all.push_back(absl::StrCat(folder, "/bin/python"));
    }
  }
  std::vector<std::string> folders = {"."};
  if (const size_t slash = config.command.script.rfind('/'); slash != std::string::npos) {
    folders.push_back(config.command.script.substr(0, slash));
  }
  for (const std::string& folder : folders) {
    for (const char* name : {".venv", "venv"}) all.push_back(absl::StrCat(folder, "/", name, "/bin/python"));
  }
  for (const char* name : {"python3", "python", "/usr/local/bin/python3", "/usr/bin/python3"}) all.push_back(name);
  return all;
}

}  // namespace

std::string FindInterpreter(const LaunchConfig& config) {
  return config.runs_python ? FirstProgram(config.command.programs, SearchPath()) : "";
}

std::string TorchHint(const LaunchConfig& config, const std::string& host, const rendezvous::WorkerFailure& cause) {
  const std::string used = FindInterpreter(config);
  if (used.empty() || cause.host() != host || !MayMissPackage(config, cause)) return "";
  const std::string home = Variable("HOME");
  if (HasPackage(used, kPackage, home).value_or(true) || PythonPathHas(kPackage)) return "";
  for (const std::string& name : OtherPythons(config)) {
    const std::string other = FirstProgram({name}, SearchPath());
    if (other.empty() || other == used || !HasPackage(other, kPackage, home).value_or(false)) continue;
    return absl::StrCat(used, " has no ", kPackage, ", but ", other,
                        " has: activate that environment, or set PYTHON_EXEC=", other);
  }
  return "";
}

}  // namespace ddprun::launcher
