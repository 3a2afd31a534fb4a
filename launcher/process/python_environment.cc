#include "launcher/process/python_environment.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/process/resolve_program.h"

namespace ddprun::launcher {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// "" for "x", "/" for "/x", "/a" for "/a/x".
std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return path.substr(0, std::max<size_t>(slash, 1));
}

std::string Absolute(const std::string& path) {
  char here[PATH_MAX];
  if (path.empty() || path[0] == '/' || getcwd(here, sizeof(here)) == nullptr) return path;
  return absl::StrCat(here, "/", path);
}

std::string RealPath(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) == nullptr ? path : real;
}

// Empty if nothing matches.
std::string FirstMatch(const std::string& pattern) {
  glob_t found = {};
  const bool any = glob(pattern.c_str(), 0, nullptr, &found) == 0 && found.gl_pathc > 0;
  std::string path = any ? found.gl_pathv[0] : "";
  globfree(&found);
  return path;
}

std::string InPrefix(const std::string& prefix, absl::string_view name) {
  for (const char* lib : {"lib", "lib64", "local/lib"}) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      std::string path = FirstMatch(absl::StrCat(prefix, "/", lib, "/python3*/", packages, "/", name));
      if (!path.empty()) return path;
    }
  }
  return "";
}

// Relevant settings in the pyvenv.cfg of a virtual environment.
struct VirtualEnvironment {
  std::string home;  // folder of the base installation's interpreter
  bool sees_base = false;
};

VirtualEnvironment ReadConfig(const std::string& file) {
  VirtualEnvironment result;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(entry.first);
    const absl::string_view value = absl::StripAsciiWhitespace(entry.second);
    if (key == "home") result.home = std::string(value);
    if (key == "include-system-site-packages") result.sees_base = absl::AsciiStrToLower(value) == "true";
  }
  return result;
}

}  // namespace

std::string PythonBeside(const std::string& command, absl::string_view path) {
  const absl::StatusOr<std::string> file = ResolveProgram(command, path);
  if (!file.ok()) return "";
  const std::string bin = RealPath(Folder(Absolute(*file)));
  const std::string prefix = Folder(bin);
  if (!Exists(absl::StrCat(prefix, "/pyvenv.cfg")) && !Exists(absl::StrCat(prefix, "/conda-meta"))) return "";
  return FirstProgram({absl::StrCat(bin, "/python")}, path);
}

std::string FirstProgram(const std::vector<std::string>& programs, absl::string_view path) {
  for (const std::string& program : programs) {
    absl::StatusOr<std::string> file = ResolveProgram(program, path);
    if (file.ok()) return *std::move(file);
  }
  return "";
}

std::string PackagePath(const std::string& python, absl::string_view pattern, const std::string& home) {
  const std::string prefix = Folder(Folder(Absolute(python)));
  const std::string config = absl::StrCat(prefix, "/pyvenv.cfg");
  std::vector<std::string> prefixes = {prefix};
  if (!Exists(config)) {
    prefixes.insert(prefixes.end(), {Folder(Folder(RealPath(python))), absl::StrCat(home, "/.local")});
  } else if (const VirtualEnvironment environment = ReadConfig(config); environment.sees_base) {
    prefixes.insert(prefixes.end(), {Folder(environment.home), absl::StrCat(home, "/.local")});
  }
  for (const std::string& place : prefixes) {
    std::string path = InPrefix(place, pattern);
    if (!path.empty()) return path;
  }
  return "";
}

std::optional<bool> HasPackage(const std::string& python, absl::string_view name, const std::string& home) {
  if (!PackagePath(python, name, home).empty()) return true;
  const std::string prefix = Folder(Folder(Absolute(python))), real = Folder(Folder(RealPath(python)));
  const bool known = Exists(absl::StrCat(prefix, "/pyvenv.cfg")) ||
                     !FirstMatch(absl::StrCat(prefix, "/lib*/python3*")).empty() ||
                     !FirstMatch(absl::StrCat(real, "/lib*/python3*")).empty();
  return known ? std::make_optional(false) : std::nullopt;
}

absl::StatusOr<std::string> PythonPackage() {
  absl::StatusOr<std::string> companion = CompanionFile("ddprun_python/ddprun");
  if (companion.ok()) return companion;
  DDPRUN_ASSIGN_OR_RETURN(std::string bin, CompanionFile("."));
  // "." is the folder of pip install --target.
  for (const char* site :
       {"lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages", "."}) {
    const std::string folder =
        FirstMatch(absl::StrCat(bin.substr(0, bin.rfind("/bin/")), "/", site, "/ddprun/in_place"));
    if (!folder.empty()) return folder.substr(0, folder.rfind('/'));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the Python package of ddprun is missing: ", companion.status().message(),
                   ", and no site-packages of that prefix has it; reinstall ddprun"));
}

}  // namespace ddprun::launcher
