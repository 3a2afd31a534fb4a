#include "launcher/interpreter.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/stream_writer.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/python_environment.h"
#include "launcher/process/resolve_program.h"

namespace ddprun::launcher {
namespace {

constexpr char kPackage[] = "torch";
// Only this part of a script is searched for imports.
constexpr size_t kHeadBytes = 64 * 1024;
constexpr size_t kMaxScriptBytes = 64 << 20;

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

// Copies what can be read from `source` into a file in memory, which is returned with these flags of memfd_create.
absl::StatusOr<UniqueFd> CopyToMemory(int source, unsigned flags) {
  UniqueFd copy(memfd_create("script", flags));
  if (!copy.valid()) return ErrnoStatus(errno, "creating a file in memory for the script");
  std::string buffer(kHeadBytes, '\0');
  size_t total = 0;
  while (total <= kMaxScriptBytes) {
    const ssize_t got = read(source, buffer.data(), buffer.size());
    if (got == 0) return copy;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "reading the script");
    total += got;
    const int error = WriteAll(copy.get(), absl::string_view(buffer).substr(0, got));
    if (error != 0) return ErrnoStatus(error, "copying the script into memory");
  }
  return absl::ResourceExhaustedError("the script is longer than 64 MiB: write it to a file");
}

}  // namespace

absl::Status ReadScriptOnce(LaunchConfig* config) {
  WorkerCommand& command = config->command;
  if (!command.python) return absl::OkStatus();
  std::string& name = command.arguments[command.script_argument];
  if (name == kStandardInput) {
    if (config->slots == 1 && isatty(STDIN_FILENO)) return absl::OkStatus();
    absl::StatusOr<UniqueFd> copy = CopyToMemory(STDIN_FILENO, MFD_CLOEXEC);
    if (copy.ok()) command.standard_input = copy->release();
    return copy.status();
  }
  struct stat status;
  if (command.script.empty() || stat(name.c_str(), &status) != 0 || !S_ISFIFO(status.st_mode)) return absl::OkStatus();
  const UniqueFd pipe(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pipe.valid()) return ErrnoStatus(errno, "opening the script");
  absl::StatusOr<UniqueFd> copy = CopyToMemory(pipe.get(), 0);  // workers inherit it
  if (copy.ok()) command.script = name = absl::StrCat("/dev/fd/", copy->release());
  return copy.status();
}

std::string FindInterpreter(const LaunchConfig& config) {
  return config.command.python ? FirstProgram(config.command.programs, SearchPath()) : "";
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
