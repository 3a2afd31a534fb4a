#ifndef DDPRUN_LAUNCHER_CONFIG_SCRIPT_FILE_H_
#define DDPRUN_LAUNCHER_CONFIG_SCRIPT_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// What is seen of a file without running it.
struct ScriptFile {
  std::string head;         // its first bytes, enough for a #! line; empty if it can't be read
  bool executable = false;  // this process may run it
};

// Whether the file of this name is a program of its own, which Python could not run: an ELF file, or an executable
// one whose #! line names an interpreter other than Python. A name in .py is never one.
bool IsProgram(absl::string_view name, const ScriptFile& file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SCRIPT_FILE_H_
