#ifndef DDPRUN_LAUNCHER_CONFIG_PYTHON_CHOICE_H_
#define DDPRUN_LAUNCHER_CONFIG_PYTHON_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// Evidence for which Python interpreter the user means.
struct PythonFacts {
  std::optional<std::string> python_exec;  // $PYTHON_EXEC
  bool python_exec_is_file = false;        // the entire value, spaces included, names a file
  std::string beside_command;  // Python of the environment that contains the launcher's command; may be empty
  std::optional<std::string> virtual_env;   // $VIRTUAL_ENV
  std::optional<std::string> conda_prefix;  // $CONDA_PREFIX
};

struct PythonChoice {
  std::vector<std::string> programs;   // candidates in order of preference; the first that exists is used
  std::vector<std::string> arguments;  // interpreter arguments, before the script
};

// PURE. Uses $PYTHON_EXEC if set; it may contain arguments, quoted as for a shell. Otherwise prefers the environment
// that the launcher's command belongs to, then the active environments, then python3 or python in PATH.
// InvalidArgument: $PYTHON_EXEC is blank or has an unterminated quote.
absl::StatusOr<PythonChoice> ChoosePython(const PythonFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_PYTHON_CHOICE_H_
