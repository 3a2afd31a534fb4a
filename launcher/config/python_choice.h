#ifndef DDPRUN_LAUNCHER_CONFIG_PYTHON_CHOICE_H_
#define DDPRUN_LAUNCHER_CONFIG_PYTHON_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// What says which Python this launcher's user means.
struct PythonFacts {
  std::optional<std::string> python_exec;   // $PYTHON_EXEC
  bool python_exec_is_file = false;         // all of it, spaces included, names one
  std::string beside_command;               // the Python of the environment that the launcher was called from; or empty
  std::optional<std::string> virtual_env;   // $VIRTUAL_ENV
  std::optional<std::string> conda_prefix;  // $CONDA_PREFIX
};

struct PythonChoice {
  std::vector<std::string> programs;   // in order of preference: the first that exists
  std::vector<std::string> arguments;  // for it, before those of the script
};

// PURE. $PYTHON_EXEC, which may have arguments, quoted as for a shell. Else the environment that the launcher was
// called from, which is the one it was installed in; then the active ones; then whatever python3 or python is in PATH.
// InvalidArgument: $PYTHON_EXEC has no word, or a quote that does not end.
absl::StatusOr<PythonChoice> ChoosePython(const PythonFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_PYTHON_CHOICE_H_
