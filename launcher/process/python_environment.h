#ifndef DDPRUN_LAUNCHER_PROCESS_PYTHON_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_PROCESS_PYTHON_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Finds Python environments on this host by looking at files: no interpreter is started. Thread-safe.
namespace ddprun::launcher {

// Interpreter of the virtual or conda environment whose bin folder contains the command called as `command` (argv[0];
// looked up in `path`, the value of PATH, if it has no '/'). The location of a symbolic link counts, not of its target.
// Absolute; empty if the command is not in such a folder.
std::string PythonBeside(const std::string& command, absl::string_view path);

// First of `programs` that can be executed, as found by ResolveProgram; empty if there is none.
std::string FirstProgram(const std::vector<std::string>& programs, absl::string_view path);

// True if `python`, a path, finds the package `name` without PYTHONPATH: in the site-packages of its environment, of
// the base installation or of the user (`home`: the user's home folder). nullopt if its search path is unknown (a pyenv
// wrapper, for example).
std::optional<bool> HasPackage(const std::string& python, absl::string_view name, const std::string& home);

// First path that matches `pattern` ("torch-*.dist-info") where HasPackage looks; empty if there is none.
std::string PackagePath(const std::string& python, absl::string_view pattern, const std::string& home);

// Folder of the Python package `ddprun` that was installed with this program: in the CompanionFile ddprun_python of a
// build or prefix, else in the site-packages of the prefix, where pip puts a wheel's. InvalidArgument, with the places,
// if it is in none. Thread-safe.
absl::StatusOr<std::string> PythonPackage();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PYTHON_ENVIRONMENT_H_
