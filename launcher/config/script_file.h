#ifndef DDPRUN_LAUNCHER_CONFIG_SCRIPT_FILE_H_
#define DDPRUN_LAUNCHER_CONFIG_SCRIPT_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SCRIPT_FILE_H_
