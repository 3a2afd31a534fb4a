#include "launcher/preflight/host_facts.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "launcher/io/error_file.h"
#include "launcher/process/hardware.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/spawn_process.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kPythonPatience = absl::Seconds(50);

// Prints a line for each version, empty if it is unknown. Before Python 3.8 there is no importlib.metadata.
constexpr char kVersions[] = R"(import sys
def version(*names):
    try:
        import importlib.metadata as metadata
    except ImportError:
        return ""
    for name in names:
        try:
            return metadata.version(name) or ""
        except Exception:
            pass
    return ""
print(sys.version.split()[0])
print(version("torch"))
print(version("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"))
)";

// "580.65.06"; empty without a driver, or if it is the kernel's own.
std::string DriverVersion() {
  for (const char* const module : {"nvidia", "amdgpu", "habanalabs"}) {
    const std::string version = ReadSmallFile(absl::StrCat("/sys/module/", module, "/version"));
    if (!version.empty()) return std::string(absl::StripAsciiWhitespace(version));
  }
  return "";
}

int64_t FreeBytes(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

int64_t HardLimit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit.rlim_max);
}

HostReport::Facts OwnFacts(const std::string& script) {
  HostReport::Facts facts;
  facts.set_host(Hostname());
  const absl::StatusOr<ChosenDevices> devices = ChooseDevices(InspectDevices(), "", /*one_each=*/true);
  facts.set_gpus(devices.ok() ? devices->visible.size() : 0);
  facts.set_driver(DriverVersion());
  // All agents are the same program, so equal texts have equal hashes.
  if (!script.empty()) facts.set_script_hash(std::hash<std::string>()(ReadSmallFile(script)));
  facts.set_clock_nanos(absl::ToUnixNanos(absl::Now()));
  facts.set_max_open_files(HardLimit(RLIMIT_NOFILE));
  facts.set_max_locked_bytes(HardLimit(RLIMIT_MEMLOCK));
  facts.set_shm_free_bytes(FreeBytes("/dev/shm"));
  facts.set_tmp(TemporaryDirectory());
  facts.set_tmp_free_bytes(FreeBytes(facts.tmp()));
  return facts;
}

absl::Status CheckScript(const HostCommand::Prepare& prepare) {
  const std::string& script = prepare.script();
  if (script.empty()) return absl::OkStatus();
  if (prepare.program()) {
    const absl::StatusOr<std::string> program = ResolveProgram(script, SearchPath());
    return program.ok() ? absl::OkStatus() : absl::InvalidArgumentError(program.status().message());
  }
  if (access(script.c_str(), R_OK) == 0) {
    // Python runs folders and archives, too.
    std::error_code error;
    if (std::filesystem::is_regular_file(script, error) || std::filesystem::is_directory(script, error)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("the script ", script, " is no file, so other hosts can't have it"));
  }
  if (errno == ENOENT) {
    return absl::InvalidArgumentError(absl::StrCat("there is no script ", script, " in ", prepare.folder(),
                                                   ": copy it there, or start from a folder that all hosts share"));
  }
  return absl::InvalidArgumentError(absl::StrCat("can't read the script ", script, ": ", strerror(errno)));
}

}  // namespace

absl::Status PrepareHost(const HostCommand::Prepare& prepare) {
  for (const std::string& entry : prepare.environment()) {
    const std::pair<std::string, std::string> variable = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    setenv(variable.first.c_str(), variable.second.c_str(), 1);
  }
  if (chdir(prepare.folder().c_str()) != 0) {
    const std::string what = absl::StrCat("can't enter the working folder ", prepare.folder(), ": ", strerror(errno));
    return absl::InvalidArgumentError(
        errno == ENOENT ? absl::StrCat(what, "; make it there, or start from a folder that all hosts share") : what);
  }
  setenv("PWD", prepare.folder().c_str(), 1);
  DDPRUN_RETURN_IF_ERROR(CheckScript(prepare));
  if (prepare.python().empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> python = ResolveProgram(prepare.python(), SearchPath());
  if (python.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no Python at ", prepare.python(),
                   ", which runs the script on the first host: make the same environment there, or set PYTHON_EXEC to "
                   "an interpreter that all hosts have"));
}

absl::StatusOr<std::unique_ptr<Command>> CollectFacts(EventLoop* loop, const HostCommand::Prepare& prepare,
                                                      std::function<void(absl::StatusOr<HostReport::Facts>)> done) {
  const std::string script = prepare.program() ? "" : prepare.script();
  if (prepare.python().empty()) {
    done(OwnFacts(script));
    return nullptr;
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string python, ResolveProgram(prepare.python(), SearchPath()));
  SpawnRequest request;
  request.program = python;
  request.argv = {python, "-c", kVersions};
  request.environment = OwnEnvironment();
  return Command::Run(loop, request, kPythonPatience, [done, script, python](const std::string& answer) {
    const std::vector<std::string> lines = absl::StrSplit(answer, '\n');
    if (lines.size() < 4) {
      return done(
          absl::InvalidArgumentError(absl::StrCat(python, " does not run: see what `", python, " -V` says there")));
    }
    HostReport::Facts facts = OwnFacts(script);
    // Lines before them are of a sitecustomize.
    const size_t first = lines.size() - 4;
    facts.set_python(lines[first]);
    facts.set_torch(lines[first + 1]);
    facts.set_nccl(lines[first + 2]);
    done(std::move(facts));
  });
}

}  // namespace ddprun::launcher
