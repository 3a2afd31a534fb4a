#include "launcher/config/parse_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/command_line.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/config/flag_table.h"
#include "launcher/config/flag_value.h"

// The only file that uses CLI11, which splits the command line into words and formats the help. flag_table parses the
// values and writes all messages about them.
namespace ddprun::launcher {
namespace {

constexpr size_t kMaxOriginBytes = 200;

// torchrun also reads these variables, with lower precedence than the flag and its PET_ variable.
struct SecondVariable {
  absl::string_view flag;
  const char* name;
};
constexpr SecondVariable kSecondVariables[] = {
    {"shutdown-timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
    {"log-line-prefix-template", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
};

// Variables with an effect in torchrun but not in ddprun.
struct UnusedVariable {
  const char* name;
  const char* advice;
};
constexpr UnusedVariable kUnusedVariables[] = {
    {"TORCHELASTIC_HEALTH_CHECK_PORT",
     "nothing listens on this port (nor in PyTorch's own torchrun); a probe can watch the process, or query "
     "rendezvousd, which serves gRPC health checks"},
    {"TORCHELASTIC_ENABLE_FILE_TIMER",
     "expired timers of torch.distributed.elastic.timer are ignored; set the timeout of init_process_group"},
    {"TORCHELASTIC_TIMER_FILE", "it is not read; set the timeout of init_process_group"},
};

// CLI11 would treat the word after "--flag=" (the script) as the flag's value, so an empty value is replaced by this
// placeholder for parsing.
constexpr char kNothing[] = "\x1f";

std::string Filled(const std::string& word) {
  const bool empty = absl::StartsWith(word, "--") && word.find('=') == word.size() - 1;
  return empty ? absl::StrCat(word, kNothing) : word;
}

// Returns the value without blanks and quotes around it.
std::string Trimmed(const Flag& flag, absl::string_view value) {
  if (value == kNothing) return "";
  // A line end is not part of the value, even of a verbatim one.
  return std::string(flag.syntax.verbatim ? value.substr(0, value.find_last_not_of("\r\n") + 1) : TrimValue(value));
}

std::string Unfilled(absl::string_view word) {
  return std::string(absl::EndsWith(word, absl::StrCat("=", kNothing)) ? absl::StripSuffix(word, kNothing) : word);
}

constexpr char kUsage[] =
    "Usage: ddprun [FLAGS] SCRIPT [SCRIPT ARGUMENTS]\n"
    "       ddprun exec [FLAGS] -- COMMAND [ARGUMENTS]  run COMMAND, in which torchrun is ddprun\n"
    "       ddprun explain [CAPSULE]                    show how a job with --log-dir failed\n"
    "       ddprun install-torchrun [--undo]            make torchrun of this Python environment ddprun\n\n"
    "Starts the workers of a distributed training job on this node, watches and restarts them.\n"
    "Run it once on every node of the job with the same flags.\n";

constexpr char kFooter[] =
    "Flags may be written with dashes or underscores, and given in the environment, as PET_NNODES for --nnodes.\n"
    "Values given by neither are taken from SLURM, Kubernetes, MPI, SkyPilot, dstack or another platform that started\n"
    "ddprun (docs/starting_jobs.md). Examples:\n"
    "  srun --ntasks-per-node=1 ddprun ./train\n"
    "  ddprun --standalone --nproc-per-node=4 train.py --lr 0.1\n"
    "  ddprun --hosts=node1:8,node2:8 train.py\n"
    "  ddprun --nnodes=1:4 --nproc-per-node=gpu --max-restarts=3 --rdzv-id=job7 --rdzv-endpoint=node1:29400 train.py";

// CLI11's layout, but with one spelling and one placeholder per flag.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override { return kUsage; }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    const std::vector<std::string>& short_names = option->get_snames();
    return absl::StrCat(short_names.empty() ? "    " : absl::StrCat("-", short_names.front(), ", "), "--",
                        option->get_lnames().front());
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : absl::StrCat("=", option->get_option_text());
  }
};

class Parser {
 public:
  Parser() {
    app_.set_help_flag();  // replaced by our own, which does not throw
    app_.prefix_command();
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.get_formatter()->column_width(40);
    app_.footer(kFooter);
    for (const Flag& flag : Flags()) options_.emplace_back(&flag, Add(flag));
    help_ = app_.add_flag("-h,--help")->description("show this text")->group("Help");
    completion_ = app_.add_option("--print-completion,--print_completion", [](const CLI::results_t&) { return true; })
                      ->description("print a script that completes flags in this shell")
                      ->group("Help")
                      ->option_text("bash|zsh|fish");
    version_ = app_.add_flag("--version")->description("show the version")->group("Help");
  }

  absl::StatusOr<ParseResult> Parse(const std::vector<std::string>& arguments, const EnvironmentLookup& environment) {
    DDPRUN_RETURN_IF_ERROR(Split(arguments));
    if (const std::vector<std::string> joined = JoinBareValue(arguments); joined != arguments) {
      DDPRUN_RETURN_IF_ERROR(Split(joined));
    }
    if (help_->count() > 0) return InfoText{absl::StrReplaceAll(app_.help(), {{"\n\n\n", "\n\n"}})};
    if (completion_->count() > 0) {
      DDPRUN_ASSIGN_OR_RETURN(std::string script, CompletionScript(completion_->results().back()));
      return InfoText{std::move(script)};
    }
    if (version_->count() > 0) return InfoText{absl::StrCat("ddprun ", kVersion, "\n")};

    ParsedOptions parsed;
    for (const std::string& word : app_.remaining()) parsed.options.script.push_back(Unfilled(word));
    DDPRUN_RETURN_IF_ERROR(CheckWords(&parsed.options.script));
    DDPRUN_RETURN_IF_ERROR(SetAll(environment, &parsed));
    return parsed;
  }

 private:
  CLI::Option* Add(const Flag& flag) {
    const std::string with_underscores = absl::StrReplaceAll(flag.name, {{"-", "_"}});
    std::string names = flag.syntax.short_name[0] == '\0' ? "" : absl::StrCat("-", flag.syntax.short_name, ",");
    absl::StrAppend(&names, "--", flag.name);
    if (with_underscores != flag.name) absl::StrAppend(&names, ",--", with_underscores);
    // CLI11's flags accept a value only after '='.
    CLI::Option* option = flag.is_switch() || flag.syntax.bare_value != nullptr
                              ? app_.add_flag(names)
                              : app_.add_option(names, [](const CLI::results_t&) { return true; });
    return option->description(flag.help)
        ->group(flag.group)
        ->option_text(flag.placeholder)
        ->multi_option_policy(flag.syntax.joins ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
  }

  // CLI11 parses "--preload VALUE SCRIPT" as "--preload" followed by the script VALUE; this rewrites it to
  // "--preload=VALUE". REQUIRES: CLI11 has split the arguments.
  std::vector<std::string> JoinBareValue(std::vector<std::string> arguments) const {
    const size_t script = arguments.size() - std::min(app_.remaining_size(), arguments.size());
    if (script == 0 || script + 1 >= arguments.size()) return arguments;
    const std::string flag_word = absl::StrReplaceAll(arguments[script - 1], {{"_", "-"}});
    for (const auto& [flag, option] : options_) {
      if (flag->syntax.is_value == nullptr || flag_word != absl::StrCat("--", flag->name)) continue;
      if (!flag->syntax.is_value(arguments[script])) continue;
      absl::StrAppend(&arguments[script - 1], "=", arguments[script]);
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(script));
      break;
    }
    return arguments;
  }

  // Lets CLI11 parse the flags at the front of the words; app_.remaining() then has the rest.
  absl::Status Split(const std::vector<std::string>& arguments) {
    std::vector<std::string> words(arguments.size());
    std::transform(arguments.begin(), arguments.end(), words.begin(), Filled);
    const auto text = [&](const CLI::Error& error) {
      // Only the last word can lack its value.
      const bool lacks_value = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
      return lacks_value ? absl::StrCat(Quoted(arguments.back()), " needs a value: ddprun --help shows which")
                         : CliErrorText(error);
    };
    return ParseWords(app_, words, text).status();  // --help and --version are ordinary flags here
  }

  // Finds errors that CLI11 does not detect. `rest` is what it did not parse; on return it starts with the script.
  absl::Status CheckWords(std::vector<std::string>* rest) const {
    for (const auto& [flag, option] : options_) {
      const bool needs_value = !flag->is_switch() && flag->syntax.bare_value == nullptr;
      if (needs_value && option->count() > 0 && LooksLikeFlag(option->results().back())) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag->name, " needs a value, but ", Quoted(option->results().back()), " follows"));
      }
    }
    if (!rest->empty() && rest->front() == "--") {
      rest->erase(rest->begin());
    } else if (!rest->empty() && (LooksLikeFlag(rest->front()) || StartsWithDash(rest->front()))) {
      return absl::InvalidArgumentError(UnknownFlagText(rest->front()));
    }
    return absl::OkStatus();
  }

  // True for a typographic dash, as copied from a web page: U+2010 to U+2015, or the minus sign.
  static bool StartsWithDash(absl::string_view word) {
    return (word >= "\u2010" && word < "\u2016") || absl::StartsWith(word, "\u2212");
  }

  // A negative number is not a flag; the flag's own check reports that it is out of range.
  static bool LooksLikeFlag(absl::string_view word) {
    return word.size() > 1 && word[0] == '-' && !absl::ascii_isdigit(word[1]);
  }

  static absl::Status Set(const Flag& flag, const std::string& value, const EnvironmentLookup& environment,
                          Options* options) {
    const size_t start = flag.is_path() && value[0] == '@' ? 1 : 0;  // skips the @ of --hosts=@FILE
    if (!flag.is_path() || value.compare(start, 1, "~") != 0) return SetFlag(flag, value, options);
    const absl::StatusOr<std::string> path = ExpandHome(value.substr(start), environment("HOME").value_or(""));
    return path.ok() ? SetFlag(flag, value.substr(0, start) + *path, options) : path.status();
  }

  absl::Status SetAll(const EnvironmentLookup& environment, ParsedOptions* parsed) const {
    for (const auto& [flag, option] : options_) {
      std::string source = absl::StrCat("--", flag->name);
      std::optional<std::string> value;
      if (option->count() > 0) {
        value = Trimmed(*flag, flag->syntax.joins ? absl::StrJoin(option->results(), ",") : option->results().back());
        if (value->empty() && flag->syntax.empty_value == EmptyValue::kNotGiven) continue;
        if (value->empty()) {
          return absl::InvalidArgumentError(
              absl::StrCat(source, " has an empty value: give one, or leave the flag out"));
        }
      } else if (std::string variable = Trimmed(*flag, environment(PetVariable(flag->name)).value_or(""));
                 !variable.empty()) {
        source = PetVariable(flag->name);
        value = std::move(variable);
      } else if (const auto second = std::find_if(std::begin(kSecondVariables), std::end(kSecondVariables),
                                                  [name = flag->name](const auto& v) { return v.flag == name; });
                 second != std::end(kSecondVariables)) {
        source = second->name;
        value = Trimmed(*flag, environment(source).value_or(""));
        if (value->empty()) value.reset();
      }
      if (!value) continue;
      if (flag->syntax.bare_value != nullptr && *value == "true") value = flag->syntax.bare_value;
      if (absl::Status status = Set(*flag, *value, environment, &parsed->options); !status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(source, ": ", status.message()));
      }
      parsed->given.emplace_back(flag->name, *value);
      const bool bare = flag->is_switch() && source[0] == '-' && *value == "true";
      parsed->origins.Give(flag->name, bare ? source : absl::StrCat(source, "=", OneLine(*value, kMaxOriginBytes)));
    }
    if (const std::string keep(TrimValue(environment(kKeepOrphansVariable).value_or(""))); !keep.empty()) {
      const absl::StatusOr<bool> keeps = ParseBool(keep);
      if (!keeps.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(kKeepOrphansVariable, ": ", keeps.status().message()));
      }
      parsed->options.keep_orphans = *keeps;
      parsed->origins.Give("orphans", absl::StrCat(kKeepOrphansVariable, "=", OneLine(keep, kMaxOriginBytes)));
    }
    if (const std::string given(TrimValue(environment(kUninterruptibleVariable).value_or(""))); !given.empty()) {
      // torchrun also takes a negative number for never.
      const absl::StatusOr<absl::Duration> timeout = given[0] == '-' ? absl::ZeroDuration() : ParseSeconds(given);
      if (!timeout.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(kUninterruptibleVariable, ": ", timeout.status().message()));
      }
      parsed->options.uninterruptible_timeout = *timeout;
      parsed->origins.Give("state D", absl::StrCat(kUninterruptibleVariable, "=", OneLine(given, kMaxOriginBytes)));
    }
    for (const UnusedVariable& unused : kUnusedVariables) {
      const std::string value(TrimValue(environment(unused.name).value_or("")));
      if (value.empty() || value == "0") continue;
      parsed->options.without_effect.push_back(absl::StrCat(unused.name, " has no effect: ", unused.advice));
    }
    return absl::OkStatus();
  }

  CLI::App app_;
  CLI::Option* help_ = nullptr;
  CLI::Option* completion_ = nullptr;
  CLI::Option* version_ = nullptr;
  std::vector<std::pair<const Flag*, CLI::Option*>> options_;
};

absl::Status CheckScript(const Options& options) {
  if (options.script.empty()) {
    if (options.show_config || (options.has_hosts() && options.rdzv_id && !options.detach)) return absl::OkStatus();
    return absl::InvalidArgumentError("no script or program to run: ddprun [FLAGS] SCRIPT [SCRIPT ARGUMENTS]");
  }
  const std::string& script = options.script.front();
  if (script.empty()) {
    return absl::InvalidArgumentError("the name of the script is empty: ddprun [FLAGS] SCRIPT [SCRIPT ARGUMENTS]");
  }
  if (script.back() == '\r') {
    return absl::InvalidArgumentError(
        absl::StrCat("the script's name is ", Quoted(script),
                     ": the file that has this command has DOS line ends; convert it (dos2unix)"));
  }
  if (options.module && options.no_python) {
    return absl::InvalidArgumentError("--module and --no-python exclude each other: a module needs Python");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParseResult> ParseOptions(const std::vector<std::string>& arguments,
                                         const EnvironmentLookup& environment) {
  absl::StatusOr<ParseResult> result = Parser().Parse(arguments, environment);
  const auto* const parsed = result.ok() ? std::get_if<ParsedOptions>(&*result) : nullptr;
  if (parsed == nullptr) return result;
  DDPRUN_RETURN_IF_ERROR(CheckScript(parsed->options));
  return result;
}

absl::StatusOr<ParseResult> ParseFlags(const std::vector<std::string>& arguments) {
  return Parser().Parse(arguments, [](const std::string&) { return std::nullopt; });
}

}  // namespace ddprun::launcher
