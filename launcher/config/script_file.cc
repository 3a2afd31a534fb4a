#include "launcher/config/script_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {

bool IsProgram(absl::string_view name, const ScriptFile& file) {
  if (absl::EndsWith(name, ".py")) return false;
  if (absl::StartsWith(file.head,
                       "\x7f"
                       "ELF"))
    return true;
  absl::string_view line = file.head;
  if (!absl::ConsumePrefix(&line, "#!") || !file.executable) return false;
  // "#!/usr/bin/env -S python3 -u" and "#!/opt/pypy/bin/pypy3" are Python too; directory names are ignored.
  line = line.substr(0, line.find('\n'));
  bool python = false;
  for (absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    word = word.substr(word.find_last_of('/') + 1);
    python = python || absl::StartsWith(word, "python") || absl::StartsWith(word, "pypy");
  }
  return !python;
}

}  // namespace ddprun::launcher
