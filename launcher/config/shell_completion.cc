#include "launcher/config/shell_completion.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/config/flag_table.h"

namespace ddprun::launcher {
namespace {

// A flag as a shell's completion needs it.
struct Completion {
  std::string name;  // without dashes
  std::string short_name;
  std::string help;  // one line
  bool takes_value = false;
  std::string placeholder;
  std::vector<std::string> values;  // literal values: "gpu" of "N|cpu|gpu|auto", "restart" of "restart[:SECONDS]"
  bool is_path = false;
};

std::vector<std::string> WordsOf(absl::string_view placeholder) {
  std::vector<std::string> words;
  for (absl::string_view word : absl::StrSplit(placeholder, '|')) {
    word = word.substr(0, word.find('['));  // without what may follow
    const auto is_plain = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; };
    if (std::all_of(word.begin(), word.end(), is_plain) && !word.empty()) words.emplace_back(word);
  }
  return words;
}

std::vector<Completion> Completions() {
  std::vector<Completion> all;
  for (const Flag& flag : Flags()) {
    Completion completion{flag.name, flag.syntax.short_name, absl::StrReplaceAll(flag.help, {{"\n", " "}})};
    // A flag whose value is optional is followed by the script.
    completion.takes_value = !flag.is_switch() && flag.syntax.bare_value == nullptr;
    completion.placeholder = flag.placeholder;
    completion.values = WordsOf(flag.placeholder);
    completion.is_path = completion.placeholder == "FILE" || completion.placeholder == "DIR";
    all.push_back(std::move(completion));
  }
  all.push_back(
      {"print-completion", "", "print a script that completes flags", true, "SHELL", {"bash", "zsh", "fish"}});
  all.push_back({"help", "h", "show the flags"});
  all.push_back({"version", "", "show the version"});
  return all;
}

// "--tee|-t".
std::string Spellings(const Completion& flag, absl::string_view separator) {
  return absl::StrCat("--", flag.name, flag.short_name.empty() ? "" : absl::StrCat(separator, "-", flag.short_name));
}

constexpr char kBash[] =
    R"sh(# Completes ddprun's flags in bash. In ~/.bashrc: eval "$(ddprun --print-completion bash)"
_ddprun() {
  local cur=${COMP_WORDS[COMP_CWORD]} i=1 value=
  COMPREPLY=()
  # bash makes a word of the '=' between a flag and its value.
  [[ $cur == = ]] && cur=
  while ((i < COMP_CWORD)); do
    case ${COMP_WORDS[i]} in
      WITH_VALUE)
        value=${COMP_WORDS[i]}
        [[ ${COMP_WORDS[i + 1]} == = ]] && ((i += 1))
        ((i += 1)) ;;
      -*) value= ;;
      *)
        # The script: what follows is its own.
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return 0 ;;
    esac
    ((i += 1))
  done
  if [[ -n $value ]] && ((i > COMP_CWORD)); then
    case $value in
CASES    esac
    return 0
  fi
  case $cur in
    -*) mapfile -t COMPREPLY < <(compgen -W 'NAMES' -- "$cur") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
  esac
}
complete -o filenames -F _ddprun ddprun
)sh";

std::string Bash() {
  std::string names, with_value, cases;
  for (const Completion& flag : Completions()) {
    absl::StrAppend(&names, names.empty() ? "" : " ", Spellings(flag, " "));
    if (!flag.takes_value) continue;
    absl::StrAppend(&with_value, with_value.empty() ? "" : "|", Spellings(flag, "|"));
    if (flag.values.empty() && !flag.is_path) continue;
    const std::string choice = flag.is_path ? "-f" : absl::StrCat("-W '", absl::StrJoin(flag.values, " "), "'");
    absl::StrAppend(&cases, "      ", Spellings(flag, "|"), ") mapfile -t COMPREPLY < <(compgen ", choice,
                    " -- \"$cur\") ;;\n");
  }
  return absl::StrReplaceAll(kBash, {{"NAMES", names}, {"WITH_VALUE", with_value}, {"CASES", cases}});
}

std::string ZshText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string Zsh() {
  std::string text =
      "#compdef ddprun\n"
      "# Completes ddprun's flags in zsh. In ~/.zshrc, after compinit: eval \"$(ddprun --print-completion zsh)\"\n"
      "_ddprun() {\n  _arguments -S \\\n";
  for (const Completion& flag : Completions()) {
    std::string value;
    if (flag.takes_value) {
      const std::string action = flag.is_path          ? "_files"
                                 : flag.values.empty() ? " "
                                                       : absl::StrCat("(", absl::StrJoin(flag.values, " "), ")");
      value = absl::StrCat(":", ZshText(flag.placeholder), ":", action);
    }
    absl::StrAppend(&text, "    '--", flag.name, flag.takes_value ? "=" : "", "[", ZshText(flag.help), "]", value,
                    "' \\\n");
    if (flag.short_name.empty()) continue;
    absl::StrAppend(&text, "    '-", flag.short_name, "[", ZshText(flag.help), "]", value, "' \\\n");
  }
  return absl::StrCat(text,
                      "    '(-)1:script:_files' \\\n"
                      "    '*:: :_files'\n"
                      "}\n"
                      "if [ \"$funcstack[1]\" = _ddprun ]; then _ddprun \"$@\"; else compdef _ddprun ddprun; fi\n");
}

std::string Fish() {
  std::string text = "# Completes ddprun's flags in fish: ddprun --print-completion fish | source\n";
  for (const Completion& flag : Completions()) {
    absl::StrAppend(&text, "complete -c ddprun -l ", flag.name,
                    flag.short_name.empty() ? "" : absl::StrCat(" -s ", flag.short_name));
    if (flag.takes_value) absl::StrAppend(&text, flag.is_path ? " -r -F" : " -x");
    if (!flag.values.empty()) absl::StrAppend(&text, " -a '", absl::StrJoin(flag.values, " "), "'");
    absl::StrAppend(&text, " -d '", absl::StrReplaceAll(flag.help, {{"\\", "\\\\"}, {"'", "\\'"}}), "'\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(absl::string_view shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  return absl::InvalidArgumentError(absl::StrCat("--print-completion: ", Quoted(shell), " is not bash, zsh or fish"));
}

}  // namespace ddprun::launcher
