#include "launcher/config/flag_table.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/output_settings.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

template <typename Parsed, typename Target>
absl::Status Store(absl::StatusOr<Parsed> parsed, Target* target) {
  DDPRUN_ASSIGN_OR_RETURN(*target, std::move(parsed));
  return absl::OkStatus();
}

template <typename Target>
absl::Status StoreInteger(string_view text, int64_t min, int64_t max, Target* target) {
  DDPRUN_ASSIGN_OR_RETURN(int64_t number, ParseInteger(text, min, max));
  *target = static_cast<int>(number);
  return absl::OkStatus();
}

// Both backends are ddprun's own rendezvous.
absl::Status CheckBackend(string_view text, Options*) {
  if (text != "c10d" && text != "static") {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is not supported: leave it out, or give c10d or static"));
  }
  return absl::OkStatus();
}

// The values that torchrun accepts.
absl::Status StoreStartMethod(string_view text, Options* options) {
  if (text != "spawn" && text != "fork" && text != "forkserver") {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not spawn, fork or forkserver"));
  }
  options->without_effect.push_back("--start-method has no effect: workers are programs");
  return absl::OkStatus();
}

absl::Status StoreEndpoints(string_view text, Options* options) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<Endpoint> endpoints, ParseEndpoints(text, kDefaultRdzvPort));
  options->rdzv_endpoint = endpoints.front();
  options->more_rdzv_endpoints.assign(endpoints.begin() + 1, endpoints.end());
  return absl::OkStatus();
}

absl::Status StoreLogDir(string_view text, Options* options) {
  if (text.empty()) return absl::InvalidArgumentError("the directory's name is empty");
  options->output.no_files = text == "/dev/null";
  options->output.log_dir = options->output.no_files ? "" : std::string(text);
  return absl::OkStatus();
}

absl::Status StorePath(string_view text, std::string* path) {
  if (text.empty()) return absl::InvalidArgumentError("the file's name is empty");
  *path = std::string(text);
  return absl::OkStatus();
}

absl::Status StoreNames(string_view text, std::vector<std::string>* names) {
  *names = absl::StrSplit(text, ',', absl::SkipEmpty());
  if (names->empty()) return absl::InvalidArgumentError("no name is given");
  return absl::OkStatus();
}

// Accepts "auto", "none" and "torch,numpy.random", but not "train.py", although Python could have such a module.
bool IsModuleList(string_view text) {
  // Identifiers and dots; Python checks letters beyond ASCII.
  const auto is_name_byte = [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || !absl::ascii_isascii(c);
  };
  for (const string_view name : absl::StrSplit(text, ',')) {
    if (name.empty() || absl::EndsWith(name, ".py") || !std::all_of(name.begin(), name.end(), is_name_byte)) {
      return false;
    }
  }
  return true;
}

absl::Status StorePreload(string_view text, Options* options) {
  if (!IsModuleList(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is not a list of modules: give auto, none, or names such as torch,numpy"));
  }
  options->preload = std::string(text);
  return absl::OkStatus();
}

// "-r=3" arrives as "=3": '=' is part of a short flag's value, but torchrun treats it as a separator.
absl::Status StoreStreams(string_view text, StreamChoice* streams) {
  return Store(ParseStreamChoice(absl::StripPrefix(text, "=")), streams);
}

absl::Status StoreLineFilters(string_view text, std::vector<std::string>* filters) {
  *filters = ParseLineFilters(text);
  if (filters->empty()) return absl::InvalidArgumentError("no text to look for is given");
  return absl::OkStatus();
}

absl::Status StoreHosts(string_view text, Options* options) {
  if (absl::ConsumePrefix(&text, "@")) return StorePath(text, &options->hosts_file);
  return Store(ParseHosts(text), &options->hosts);
}

// The comma separates, so that a value may have an '=' but no comma.
absl::Status StoreVariables(string_view text, Options* options) {
  DDPRUN_RETURN_IF_ERROR(StoreNames(text, &options->passed_variables));
  for (const std::string& word : options->passed_variables) {
    if (word.front() == '=') return absl::InvalidArgumentError(absl::StrCat(Quoted(word), " has no name"));
  }
  return absl::OkStatus();
}

bool IsProgressMode(string_view text) { return text == "auto" || text == "on" || text == "off"; }

absl::Status StoreProgress(string_view text, Options* options) {
  if (!IsProgressMode(text)) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is invalid: give auto, on or off"));
  }
  options->output.progress = text == "on"    ? ProgressMode::kOn
                             : text == "off" ? ProgressMode::kOff
                                             : ProgressMode::kAuto;
  return absl::OkStatus();
}

constexpr char kJob[] = "Job";
constexpr char kHosts[] = "Hosts";
constexpr char kRendezvous[] = "Rendezvous";
constexpr char kCredentials[] = "Credentials";
constexpr char kWorkers[] = "Workers";
constexpr char kOutput[] = "Output";
constexpr char kStopping[] = "Watching and stopping";
constexpr char kNoEffect[] = "Accepted for compatibility, without effect";
constexpr char kHelp[] = "Help";

constexpr Flag::Syntax kEmptyIsNotGiven = {.empty_value = EmptyValue::kNotGiven};
constexpr Flag::Syntax kText = {.empty_value = EmptyValue::kNotGiven, .verbatim = true};

constexpr Flag kFlags[] = {
    {"nnodes", "N|MIN:MAX", kJob, "number of nodes (that of the SLURM step, else 1)",
     [](string_view v, Options* o) { return Store(ParseNodeCount(v), &o->nnodes); }},
    {"nproc-per-node", "N|cpu|gpu|xpu|hpu|npu|auto", kJob,
     "workers on this node (one for each GPU that SLURM\nassigned, else 1)",
     [](string_view v, Options* o) { return Store(ParseProcessCount(v), &o->nproc_per_node); }},
    {"max-restarts", "N", kJob, "restarts of the workers after failures (0)",
     [](string_view v, Options* o) { return StoreInteger(v, 0, rendezvous::kMaxRestarts, &o->max_restarts); }},
    {"role", "NAME", kJob, "role of this node's workers (default)",
     [](string_view v, Options* o) { return Store(ParseName(v), &o->role); }, kEmptyIsNotGiven},
    {"hosts", "HOST[:N],...|@FILE", kHosts,
     "start the job on these hosts over ssh, with N workers\non each; @FILE: a hostfile, as of MPI and DeepSpeed",
     StoreHosts},
    {"env",
     "NAME[=VALUE],...",
     kHosts,
     "pass these variables to the hosts too; NAME*: all that\nbegin so",
     StoreVariables,
     {.joins = true}},
    {"detach", "", kHosts, "return once the job runs; ddprunctl shows and stops it",
     [](string_view v, Options* o) { return Store(ParseBool(v), &o->detach); }},
    {"standalone", "", kRendezvous, "single node; the rendezvous stays in this process",
     [](string_view v, Options* o) { return Store(ParseBool(v), &o->standalone); }},
    {"rdzv-endpoint", "HOST[:PORT],...", kRendezvous,
     "node (or server) that all nodes can reach; port 29400;\nIPv6 with a port as [ADDRESS]:PORT; several "
     "endpoints\nfor several rendezvousd that share one etcd",
     StoreEndpoints, kEmptyIsNotGiven},
    {"rdzv-id", "ID", kRendezvous, "job id, the same on all nodes of the job",
     [](string_view v, Options* o) { return Store(ParseName(v), &o->rdzv_id); }, kEmptyIsNotGiven},
    {"rdzv-backend", "c10d|static", kRendezvous, "both select ddprun's own rendezvous", CheckBackend},
    {"rdzv-conf", "KEY=VALUE,...", kRendezvous,
     "durations in seconds: join_timeout (600),\nlast_call_timeout (30), heartbeat_timeout (3 or 10),\n"
     "reconnect_timeout (1800 or 30),\nreconnect_grace (0.08), restart_window (the job's\nlifetime), "
     "restart_backoff (0), node_cooldown (60);\nalso max_failures_at_step (3), is_host, rank",
     [](string_view v, Options* o) { return Store(ParseRdzvConf(v), &o->rdzv_conf); }, kEmptyIsNotGiven},
    {"node-rank", "N", kRendezvous, "group rank requested for this node",
     [](string_view v, Options* o) { return StoreInteger(v, 0, kMaxNodes - 1, &o->node_rank); }},
    {"master-addr", "HOST", kRendezvous,
     "host of the endpoint, if --rdzv-endpoint is not\ngiven (127.0.0.1); in a one-node job: MASTER_ADDR",
     [](string_view v, Options* o) { return Store(ParseHost(v), &o->master_addr); }},
    {"master-port", "PORT", kRendezvous,
     "port of the endpoint, if --rdzv-endpoint is not\ngiven (29500); else, and in a one-node job: MASTER_PORT",
     [](string_view v, Options* o) { return StoreInteger(v, 0, 65535, &o->master_port); }},
    {"local-addr", "HOST", kRendezvous,
     "address at which other nodes reach this one (that of\nthe route to the endpoint)",
     [](string_view v, Options* o) { return Store(ParseHost(v), &o->local_addr); }, kEmptyIsNotGiven},
    {"port-range", "FIRST-LAST", kRendezvous, "range of all ports to listen on (any)",
     [](string_view v, Options* o) { return Store(ParsePortRange(v), &o->port_range); }},
    {"token-file", "FILE", kCredentials,
     "send the first line of this file to the server as the\ntoken; where this launcher hosts it, accept any "
     "line\n(DDPRUN_TOKEN_FILE, or the token in DDPRUN_TOKEN)",
     [](string_view v, Options* o) { return StorePath(v, &o->credentials.token_file); }},
    {"tls-cert", "FILE", kCredentials, "PEM certificate chain of this launcher",
     [](string_view v, Options* o) { return StorePath(v, &o->credentials.tls_cert); }},
    {"tls-key", "FILE", kCredentials, "PEM key of --tls-cert",
     [](string_view v, Options* o) { return StorePath(v, &o->credentials.tls_key); }},
    {"tls-ca", "FILE", kCredentials, "CA certificates (PEM) that verify the other side",
     [](string_view v, Options* o) { return StorePath(v, &o->credentials.tls_ca); }},
    {"tls-allowed-names", "NAME,...", kCredentials,
     "where this launcher hosts the server: each launcher's\ncertificate must have one of these names",
     [](string_view v, Options* o) { return StoreNames(v, &o->credentials.tls_allowed_names); }},
    {"module",
     "",
     kWorkers,
     "SCRIPT is a Python module (python -m)",
     [](string_view v, Options* o) { return Store(ParseBool(v), &o->module); },
     {.short_name = "m"}},
    {"no-python", "", kWorkers, "SCRIPT is a program, not a Python script (detected\nfor executable files)",
     [](string_view v, Options* o) { return Store(ParseBool(v), &o->no_python); }},
    {"preload",
     "auto|none|MODULE,...",
     kWorkers,
     "import these modules once, then fork the workers;\nauto: the imports at the start of the script;\nC++ programs "
     "with ddprun's worker runtime: auto",
     StorePreload,
     {.bare_value = "auto", .is_value = IsModuleList}},
    {"virtual-local-rank", "", kWorkers,
     "each worker sees only its own device: LOCAL_RANK=0,\nCUDA_VISIBLE_DEVICES (or the vendor's) is that one",
     [](string_view v, Options* o) { return Store(ParseBool(v), &o->virtual_local_rank); }},
    {"numa-binding", "node|socket|exclusive|core-complex", kWorkers,
     "bind each worker to CPUs near its GPU: all of the\nNUMA node or socket, an exclusive share, or one\nlast-level "
     "cache",
     [](string_view v, Options* o) { return Store(ParseCpuBinding(v), &o->cpu_binding); }},
    {"progress",
     "auto|on|off",
     kOutput,
     "show training progress, if the workers report it: in\nthe terminal's last row (auto), or else as lines (on)",
     StoreProgress,
     {.bare_value = "on", .is_value = IsProgressMode}},
    {"log-dir", "DIR", kOutput, "directory of log and error files; /dev/null: none", StoreLogDir, kEmptyIsNotGiven},
    {"redirects",
     "0|1|2|3|RANK:N,...",
     kOutput,
     "write to files instead of the terminal: 1 stdout,\n2 stderr, 3 both; or by local rank, as 0:1,1:3",
     [](string_view v, Options* o) { return StoreStreams(v, &o->output.redirects); },
     {.short_name = "r"}},
    {"tee",
     "0|1|2|3|RANK:N,...",
     kOutput,
     "write to files and, with a prefix, to the terminal",
     [](string_view v, Options* o) { return StoreStreams(v, &o->output.tee); },
     {.short_name = "t"}},
    {"local-ranks-filter", "[global:]RANK,...", kOutput,
     "show only these workers' output on the terminal, by\nlocal rank, or with global: by rank of the job (all)",
     [](string_view v, Options* o) { return Store(ParseRankFilter(v), &o->output.local_ranks_filter); },
     kEmptyIsNotGiven},
    {"log-line-prefix-template", "TEXT", kOutput,
     "prefix of lines that --tee shows, with ${rank},\n${local_rank}, ${role_name}, ${hostname}, ${time}\n"
     "([${role_name}${local_rank}]:)",
     [](string_view v, Options* o) {
       o->output.line_prefix = std::string(v);
       return absl::OkStatus();
     },
     kText},
    {"duplicate-stdout-filters", "TEXT,...", kOutput,
     "copy lines of --tee that contain one of these to\nfiltered_stdout.log of the attempt",
     [](string_view v, Options* o) { return StoreLineFilters(v, &o->output.stdout_filters); }, kText},
    {"duplicate-stderr-filters", "TEXT,...", kOutput, "the same for stderr",
     [](string_view v, Options* o) { return StoreLineFilters(v, &o->output.stderr_filters); }, kText},
    {"shutdown-timeout", "SECONDS", kStopping, "time between SIGTERM and SIGKILL for workers (30)",
     [](string_view v, Options* o) { return Store(ParseSeconds(v), &o->shutdown_timeout); }},
    {"on-hang", "report|restart[:SECONDS]", kStopping,
     "when a worker keeps the others waiting: name it, with\nits stacks (report), or also kill it, which counts as a\n"
     "failure (restart); SECONDS without progress, 0: never\n(learned, at least 30)",
     [](string_view v, Options* o) { return Store(ParseHangPolicy(v), &o->hang); }},
    {"on-end", "COMMAND", kStopping,
     "when the job ends, run this command of /bin/sh on one\nnode, with the summary as JSON on its standard input",
     [](string_view v, Options* o) {
       o->on_end = std::string(v);
       return absl::OkStatus();
     },
     kText},
    {"result", "FILE", kStopping, "when the job ends, write that JSON to this file, on\nthe same node",
     [](string_view v, Options* o) { return StorePath(v, &o->result); }, kEmptyIsNotGiven},
    {"signals-to-handle", "SIGNAL,...", kStopping, "signals that stop the job\n(SIGTERM,SIGINT,SIGHUP,SIGQUIT)",
     [](string_view v, Options* o) { return Store(ParseSignals(v), &o->signals_to_handle); }, kEmptyIsNotGiven},
    {"monitor-interval", "SECONDS", kNoEffect, "ddprun does not poll",
     [](string_view v, Options*) { return ParsePositiveSeconds(v).status(); }},
    {"start-method", "METHOD", kNoEffect, "workers are programs", StoreStartMethod},
    {"run-path", "", kNoEffect, "Python runs the script", nullptr},
    {"event-log-handler", "NAME", kNoEffect, "ddprun logs to stderr", nullptr},
    {"logs-specs", "NAME", kNoEffect, "use --log-dir, --redirects and --tee", nullptr},
    {"show-config", "", kHelp, "show every setting and where it came from",
     [](string_view v, Options* o) { return Store(ParseBool(v), &o->show_config); }},
};

constexpr size_t kMinPrefix = 3;
constexpr size_t kMaxLength = 64;  // longer words are not misspelt flags, and are expensive to compare

// Optimal string alignment distance: Levenshtein distance with swaps of neighbours.
size_t Distance(string_view a, string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// Returns the word that `given` was probably meant to be: one that begins with it, else the one with the smallest
// number of letters to insert, drop, change or swap with a neighbour (at most a third of its length). None if no word
// is near.
std::optional<std::string> NearestWord(string_view given, absl::Span<const std::string> words) {
  if (given.empty() || given.size() > kMaxLength) return std::nullopt;
  std::optional<std::string> nearest;
  size_t least = 0;
  for (const std::string& word : words) {
    const bool abbreviated = given.size() >= kMinPrefix && absl::StartsWith(word, given);
    const size_t distance = abbreviated ? 0 : Distance(given, word);
    if (distance > word.size() / 3) continue;
    if (!nearest || distance < least) {
      nearest = word;
      least = distance;
    }
  }
  return nearest;
}

// A flag as a shell's completion needs it.
struct Completion {
  std::string name;  // without dashes
  std::string short_name;
  std::string help;  // one line
  bool takes_value = false;
  std::string placeholder;
  std::vector<std::string> values;  // literal values: "gpu" of "N|cpu|gpu", "restart" of "restart[:SECONDS]"
  bool is_path = false;
};

std::vector<std::string> WordsOf(string_view placeholder) {
  std::vector<std::string> words;
  for (string_view word : absl::StrSplit(placeholder, '|')) {
    word = word.substr(0, word.find('['));  // without what may follow
    const auto is_plain = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; };
    if (std::all_of(word.begin(), word.end(), is_plain) && !word.empty()) words.emplace_back(word);
  }
  return words;
}

std::vector<Completion> Completions() {
  std::vector<Completion> all;
  for (const Flag& flag : kFlags) {
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
std::string Spellings(const Completion& flag, string_view separator) {
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

std::string ZshText(string_view text) {
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

absl::Span<const Flag> Flags() { return kFlags; }

absl::Status SetFlag(const Flag& flag, string_view value, Options* options) {
  if (flag.set != nullptr) return flag.set(value, options);
  if (flag.is_switch()) {
    const absl::StatusOr<bool> given = ParseBool(value);
    if (!given.ok() || !*given) return given.status();
  }
  options->without_effect.push_back(absl::StrCat("--", flag.name, " has no effect: ", flag.help));
  return absl::OkStatus();
}

std::string PetVariable(string_view flag) {
  return absl::StrCat("PET_", absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

namespace {

// Flags of mpirun, srun, DeepSpeed and Accelerate, in lower case, and what does the same here.
struct ForeignFlag {
  string_view names;  // each between blanks
  string_view advice;
};
constexpr ForeignFlag kForeignFlags[] = {
    {" n np ppn npernode ntasks-per-node num-gpus ", "give --nproc-per-node, the number of workers on each node"},
    {" hostfile machinefile host h f ", "give --hosts=HOST:N,... or --hosts=@FILE"},
    {" num-machines num-nodes ", "give --nnodes"},
    {" machine-rank ", "give --node-rank"},
    {" x genv ", "give --env, or nothing: workers have the launcher's variables"},
};

}  // namespace

std::string UnknownFlagText(string_view given) {
  const string_view shown = given.substr(0, given.find('='));
  // Without the dashes in front, which may be typographic ones, and what can't be part of a name.
  const auto is_in_name = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; };
  const auto* const first = std::find_if(shown.begin(), shown.end(), absl::ascii_isalnum);
  const std::string name = absl::AsciiStrToLower(
      absl::StrReplaceAll(string_view(first, std::find_if_not(first, shown.end(), is_in_name) - first), {{"_", "-"}}));
  // "-n4" has its value in the same word.
  const string_view word = string_view(name).substr(0, name.find_last_not_of("0123456789") + 1);
  for (const ForeignFlag& flag : kForeignFlags) {
    if (absl::StrContains(flag.names, absl::StrCat(" ", word, " "))) {
      return absl::StrCat("unknown flag ", Quoted(shown), ": ", flag.advice);
    }
  }
  std::vector<std::string> names = {"help", "print-completion", "version"};
  for (const Flag& flag : kFlags) names.push_back(flag.name);
  const std::optional<std::string> nearest = NearestWord(name, names);
  const std::string advice = nearest ? absl::StrCat("did you mean --", *nearest, "?")
                                     : "see ddprun --help; flags of the script follow the script";
  return absl::StrCat("unknown flag ", Quoted(shown), ": ", advice);
}

absl::StatusOr<std::string> CompletionScript(string_view shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  return absl::InvalidArgumentError(absl::StrCat("--print-completion: ", Quoted(shell), " is not bash, zsh or fish"));
}

}  // namespace ddprun::launcher
