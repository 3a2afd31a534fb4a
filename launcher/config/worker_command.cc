#include "launcher/config/worker_command.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

// Splits words as a shell does, but without expansions. nullopt: an unterminated quote or backslash.
std::optional<std::vector<std::string>> SplitWords(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && absl::ascii_isspace(c)) {
      if (in_word) words.push_back(std::exchange(word, ""));
      in_word = false;
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (c == '\\' && quote != '\'') {
      if (++i == text.size()) return std::nullopt;
      word += text[i];
      in_word = true;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return std::nullopt;
  if (in_word) words.push_back(std::move(word));
  return words;
}

}  // namespace

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

absl::StatusOr<PythonChoice> ChoosePython(const PythonFacts& facts) {
  PythonChoice choice;
  if (facts.python_exec && !facts.python_exec->empty()) {
    if (facts.python_exec_is_file) {
      choice.programs = {*facts.python_exec};
      return choice;
    }
    std::optional<std::vector<std::string>> words = SplitWords(*facts.python_exec);
    if (!words || words->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("PYTHON_EXEC=", *facts.python_exec, ": ", words ? "no program is given" : "unterminated quote"));
    }
    choice.programs = {words->front()};
    choice.arguments.assign(words->begin() + 1, words->end());
    return choice;
  }
  if (!facts.beside_command.empty()) choice.programs.push_back(facts.beside_command);
  for (const std::optional<std::string>& folder : {facts.virtual_env, facts.conda_prefix}) {
    if (folder && !folder->empty()) choice.programs.push_back(absl::StrCat(*folder, "/bin/python"));
  }
  choice.programs.push_back("python3");
  choice.programs.push_back("python");
  return choice;
}

}  // namespace ddprun::launcher
