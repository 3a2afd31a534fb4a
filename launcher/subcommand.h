#ifndef DDPRUN_LAUNCHER_SUBCOMMAND_H_
#define DDPRUN_LAUNCHER_SUBCOMMAND_H_

#include <optional>
#include <string>
#include <vector>

#include "launcher/config/worker_command.h"

namespace ddprun::launcher {

// Runs the subcommand that `arguments` begin with. All but explain replace this process: it keeps its process id,
// signals and descriptors.
//   exec [FLAGS] -- COMMAND...   with folders of the Python package at the front of PATH and PYTHONPATH: torchrun is
//                                ddprun there (packaging/wheel/ddprun/in_place), and has FLAGS as PET_ variables.
//                                Without flags, `--` may be left out
//   explain [CAPSULE]            shows a capsule (launcher/capsule); a log folder stands for its newest one
//   install-torchrun ...         the package's program of that name, in the Python that `python` leads to
// Returns an exit code, after logging the reason if it is not 0; nullopt if `arguments` begin with none of them. Call
// it before creating threads.
std::optional<int> RunSubcommand(const std::vector<std::string>& arguments, const PythonFacts& python);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SUBCOMMAND_H_
