#ifndef DDPRUN_LAUNCHER_CONFIG_WORKER_COMMAND_H_
#define DDPRUN_LAUNCHER_CONFIG_WORKER_COMMAND_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// PURE. The command line of the workers: Python with a script or module, or a program.
namespace ddprun::launcher {

// Properties of a file that are read without running it.
struct ScriptFile {
  std::string head;         // first bytes, enough for a #! line; empty if unreadable
  bool executable = false;  // this process may execute it
  std::string in_path;      // program in PATH of that name, if there is no such file
};

// True if the file is a program that Python can't run: an ELF file, or an executable whose #! line names an interpreter
// other than Python. Never true for names that end in .py.
bool IsProgram(absl::string_view name, const ScriptFile& file);

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

// Uses $PYTHON_EXEC if set; it may contain arguments, quoted as for a shell. Otherwise prefers the environment
// that the launcher's command belongs to, then the active environments, then python3 or python in PATH.
// InvalidArgument: $PYTHON_EXEC is blank or has an unterminated quote.
absl::StatusOr<PythonChoice> ChoosePython(const PythonFacts& facts);

// Replaced in the script's arguments, as by torchrun. torch.distributed.launch adds --local-rank=${local_rank}.
inline constexpr char kLocalRankMacro[] = "${local_rank}";

// Python's name for the script on its standard input.
inline constexpr char kStandardInput[] = "-";

// A worker's command line.
struct WorkerCommand {
  std::vector<std::string> programs;   // candidates in order of preference; looked up in PATH if without '/'
  std::vector<std::string> arguments;  // arguments after the program's name
  std::string script;                  // Python file that must exist; empty: none is named
  bool python = false;                 // `programs` are Python interpreters
  size_t script_argument = 0;          // if python: index of the script's or module's name in `arguments`
  int standard_input = -1;             // file that each worker reads from its start; -1: the launcher's own

  // Returns the words of the command line that runs `program`.
  std::vector<std::string> Argv(const std::string& program) const {
    std::vector<std::string> argv = {program};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return argv;
  }
};

// A fork server that this process inherited: a Python program forked it, and then replaced itself by this launcher
// (packaging/wheel/ddprun/forking.py).
struct ForkedServer {
  int socket = -1;  // this process's end
  pid_t pid = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_WORKER_COMMAND_H_
