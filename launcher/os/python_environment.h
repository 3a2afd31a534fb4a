#ifndef DDPRUN_LAUNCHER_OS_PYTHON_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_OS_PYTHON_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// Which Python environments there are on this host, as far as files tell: no interpreter is started. Thread-safe.
namespace ddprun::launcher {

// The interpreter of the virtual or conda environment in whose bin folder the command lies that was called as
// `command` (argv[0]; looked for in `path`, the value of PATH, if it has no '/'). A symbolic link counts where it lies.
// Absolute. Empty: it lies in no such folder.
std::string PythonBeside(const std::string& command, absl::string_view path);

// The first of `programs` that can be executed, as ResolveProgram finds it; empty if there is none.
std::string FirstProgram(const std::vector<std::string>& programs, absl::string_view path);

// Whether `python`, a path, finds the package `name` without PYTHONPATH: in its environment's, its base's and the
// user's site-packages (`home`: his home folder). nullopt: where it looks is not known (a wrapper of pyenv, say).
std::optional<bool> HasPackage(const std::string& python, absl::string_view name, const std::string& home);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PYTHON_ENVIRONMENT_H_
