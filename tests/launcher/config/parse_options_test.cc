#include "launcher/config/parse_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/version.h"
#include "launcher/config/flag_table.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {
namespace {

using Arguments = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

absl::StatusOr<ParseResult> Parse(const Arguments& arguments, const Environment& environment = {}) {
  return ParseOptions(arguments, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

// Fails the test and returns the defaults if the arguments are invalid.
ParsedOptions MustParseAll(const Arguments& arguments, const Environment& environment = {}) {
  absl::StatusOr<ParseResult> result = Parse(arguments, environment);
  if (!result.ok() || !std::holds_alternative<ParsedOptions>(*result)) {
    ADD_FAILURE() << (result.ok() ? "help text" : result.status().ToString());
    return ParsedOptions();
  }
  return std::get<ParsedOptions>(*std::move(result));
}

Options MustParse(const Arguments& arguments, const Environment& environment = {}) {
  return MustParseAll(arguments, environment).options;
}

bool HasNoEffect(const Options& options, absl::string_view flag) {
  return options.without_effect.size() == 1 && absl::StartsWith(options.without_effect[0], flag);
}

constexpr StdStreams kBoth{true, true}, kErr{false, true};

// For each flag with a value: a valid value, and a check that it was taken.
struct Sample {
  const char* name;
  const char* value;
  bool (*taken)(const Options&) = nullptr;  // null: the value is only checked
};

bool IsTaken(const Sample& sample, const ParsedOptions& parsed) {
  if (sample.taken != nullptr) return sample.taken(parsed.options);
  return std::find(parsed.given.begin(), parsed.given.end(),
                   std::pair<std::string, std::string>(sample.name, sample.value)) != parsed.given.end();
}

const Sample kSamples[] = {
    {"nnodes", "2:3", [](const Options& o) { return o.nnodes.min == 2 && o.nnodes.max == 3; }},
    {"nproc-per-node", "gpu", [](const Options& o) { return o.nproc_per_node.device == "gpu"; }},
    {"max-restarts", "4", [](const Options& o) { return o.max_restarts == 4; }},
    {"hosts", "a,b:2", [](const Options& o) { return o.hosts.size() == 2 && o.hosts[1].slots == 2; }},
    {"env", "A,B=1", [](const Options& o) { return absl::StrJoin(o.passed_variables, "|") == "A|B=1"; }},
    {"preload", "json,torch.nn", [](const Options& o) { return o.preload == "json,torch.nn"; }},
    {"role", "trainer", [](const Options& o) { return o.role == "trainer"; }},
    {"rdzv-endpoint", "[::1]:5",
     [](const Options& o) { return o.rdzv_endpoint && o.rdzv_endpoint->ToString() == "[::1]:5"; }},
    {"rdzv-id", "job 7", [](const Options& o) { return o.rdzv_id == "job 7"; }},
    {"rdzv-backend", "c10d"},
    {"rdzv-conf", "join_timeout=5,rank=1",
     [](const Options& o) { return o.rdzv_conf.job.join_timeout().seconds() == 5 && o.rdzv_conf.rank == 1; }},
    {"node-rank", "1", [](const Options& o) { return o.node_rank == 1; }},
    {"master-addr", "10.0.0.1", [](const Options& o) { return o.master_addr == "10.0.0.1"; }},
    {"master-port", "1234", [](const Options& o) { return o.master_port == 1234; }},
    {"port-range", "20000-20100",
     [](const Options& o) { return o.port_range && o.port_range->ToString() == "20000-20100"; }},
    {"local-addr", "10.0.0.2", [](const Options& o) { return o.local_addr == "10.0.0.2"; }},
    {"log-dir", "/logs", [](const Options& o) { return o.output.log_dir == "/logs"; }},
    {"redirects", "0:1,12:3",
     [](const Options& o) {
       return o.output.redirects.For(12) == StdStreams{true, true};
     }},
    {"tee", "2",
     [](const Options& o) {
       return o.output.tee.For(0) == StdStreams{false, true};
     }},
    {"local-ranks-filter", "0,2",
     [](const Options& o) {
       return o.output.local_ranks_filter == RankFilter{{0, 2}};
     }},
    {"log-line-prefix-template", "[${rank}]: ", [](const Options& o) { return o.output.line_prefix == "[${rank}]: "; }},
    {"duplicate-stdout-filters", "a,b",
     [](const Options& o) {
       return o.output.stdout_filters == std::vector<std::string>{"a", "b"};
     }},
    {"duplicate-stderr-filters", "c,,",
     [](const Options& o) { return o.output.stderr_filters == std::vector<std::string>{"c,"}; }},
    {"start-method", "fork", [](const Options& o) { return HasNoEffect(o, "--start-method"); }},
    {"event-log-handler", "console", [](const Options& o) { return HasNoEffect(o, "--event-log-handler"); }},
    {"logs-specs", "default", [](const Options& o) { return HasNoEffect(o, "--logs-specs"); }},
    {"numa-binding", "exclusive", [](const Options& o) { return o.cpu_binding == CpuBinding::kExclusive; }},
    {"monitor-interval", "0.5"},
    {"shutdown-timeout", "0", [](const Options& o) { return o.shutdown_timeout == absl::ZeroDuration(); }},
    {"progress", "off", [](const Options& o) { return o.output.progress == ProgressMode::kOff; }},
    {"on-hang", "restart:90",
     [](const Options& o) { return o.hang == HangPolicy{.fixed_limit = absl::Seconds(90), .restart = true}; }},
    {"on-end", "jq .reason | mail me", [](const Options& o) { return o.on_end == "jq .reason | mail me"; }},
    {"result", "/runs/result.json", [](const Options& o) { return o.result == "/runs/result.json"; }},
    {"signals-to-handle", "SIGUSR1,TERM",
     [](const Options& o) { return SignalNames(o.signals_to_handle) == "SIGUSR1,SIGTERM"; }},
    {"token-file", "/run/token", [](const Options& o) { return o.credentials.token_file == "/run/token"; }},
    {"tls-cert", "/run/c.pem", [](const Options& o) { return o.credentials.tls_cert == "/run/c.pem"; }},
    {"tls-key", "/run/k.pem", [](const Options& o) { return o.credentials.tls_key == "/run/k.pem"; }},
    {"tls-ca", "/run/ca.pem", [](const Options& o) { return o.credentials.tls_ca == "/run/ca.pem"; }},
    {"tls-allowed-names", "a,b",
     [](const Options& o) { return absl::StrJoin(o.credentials.tls_allowed_names, "|") == "a|b"; }},
};
const Sample kSwitches[] = {
    {"detach", "1", [](const Options& o) { return o.detach; }},
    {"standalone", "1", [](const Options& o) { return o.standalone; }},
    {"module", "1", [](const Options& o) { return o.module; }},
    {"no-python", "1", [](const Options& o) { return o.no_python; }},
    {"virtual-local-rank", "1", [](const Options& o) { return o.virtual_local_rank; }},
    {"run-path", "1", [](const Options& o) { return HasNoEffect(o, "--run-path"); }},
    {"show-config", "1", [](const Options& o) { return o.show_config; }},
};

std::vector<std::string> Spellings(const std::string& name) {
  return {"--" + name, "--" + absl::StrReplaceAll(name, {{"-", "_"}})};
}

TEST(ParseOptions, Samples_CoverEveryFlag) { EXPECT_EQ(std::size(kSamples) + std::size(kSwitches), Flags().size()); }

TEST(ParseOptions, EveryFlagInEverySpellingAndForm_IsTaken) {
  for (const Sample& sample : kSamples) {
    EXPECT_FALSE(IsTaken(sample, MustParseAll({"x.py"}))) << sample.name << " proves nothing";
    for (const std::string& flag : Spellings(sample.name)) {
      for (const Arguments& arguments : {Arguments{flag, sample.value, "x.py", "arg"},
                                         Arguments{absl::StrCat(flag, "=", sample.value), "x.py", "arg"}}) {
        const ParsedOptions parsed = MustParseAll(arguments);
        EXPECT_TRUE(IsTaken(sample, parsed)) << arguments[0];
        EXPECT_EQ(parsed.options.script, (Arguments{"x.py", "arg"})) << arguments[0];
      }
    }
  }
}

TEST(ParseOptions, RepeatedFlag_ReplacesTheValue_ExceptOfAList) {
  const Options options = MustParse({"--role=a", "--env=A", "--role=b", "--env", "B,C=1", "x.py"});
  EXPECT_EQ(options.role, "b");
  EXPECT_EQ(absl::StrJoin(options.passed_variables, "|"), "A|B|C=1");
  EXPECT_TRUE(MustParse({"--standalone", "--standalone", "x"}).standalone);
}

// CRLF scripts, YAML, and quotes that no shell has removed.
TEST(ParseOptions, BlanksQuotesAndLineEnds_AreTrimmed) {
  for (const char* form : {"%", " %\t", "%\r", "%\r\n", "'%'", "\"%\"", "\"% \"\r"}) {
    const auto formed = [&](const char* value) { return absl::StrReplaceAll(form, {{"%", value}}); };
    for (const Sample& sample : kSamples) {
      const auto flag = std::find_if(Flags().begin(), Flags().end(),
                                     [&](const Flag& f) { return std::string(f.name) == sample.name; });
      if (flag->syntax.verbatim) continue;
      SCOPED_TRACE(absl::StrCat(sample.name, "=", formed(sample.value)));
      EXPECT_TRUE(IsTaken(sample, MustParseAll({absl::StrCat("--", sample.name, "=", formed(sample.value)), "x.py"})));
      EXPECT_TRUE(IsTaken(sample, MustParseAll({"x.py"}, {{PetVariable(sample.name), formed(sample.value)}})));
    }
    for (const Sample& sample : kSwitches) {
      EXPECT_TRUE(IsTaken(sample, MustParseAll({"x.py"}, {{PetVariable(sample.name), formed("1")}}))) << sample.name;
    }
    EXPECT_TRUE(MustParse({"x.py"}, {{"DDPRUN_KEEP_ORPHANS", formed("1")}}).keep_orphans);
    EXPECT_EQ(MustParse({"x.py"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", formed("5")}}).shutdown_timeout,
              absl::Seconds(5));
    EXPECT_FALSE(MustParse({absl::StrCat("--rdzv-id=", formed("")), "x.py"}).rdzv_id) << "as if it were not given";
  }
  EXPECT_EQ(MustParse({"--rdzv-conf=rank='1', join_timeout=\"5\"", "x.py"}).rdzv_conf.rank, 1);
  EXPECT_EQ(MustParse({"--log-line-prefix-template=' [${rank}] '\r", "x.py"}).output.line_prefix, "' [${rank}] '");
  EXPECT_EQ(MustParse({"--duplicate-stdout-filters= loss,\n", "x.py"}).output.stdout_filters,
            (std::vector<std::string>{" loss"}));
  EXPECT_EQ(MustParse({"x.py", "'a '\r"}).script, (Arguments{"x.py", "'a '\r"})) << "the script's own";
}

// No shell expands it after an "=" or in a variable.
TEST(ParseOptions, HomeInPaths_IsExpanded) {
  const Environment home = {{"HOME", "/home/me"}};
  EXPECT_EQ(MustParse({"--log-dir=~/logs", "x.py"}, home).output.log_dir, "/home/me/logs");
  EXPECT_EQ(MustParse({"--log-dir=~", "x.py"}, home).output.log_dir, "/home/me");
  EXPECT_EQ(MustParse({"--log-dir=./~", "x.py"}, home).output.log_dir, "./~");
  EXPECT_EQ(MustParse({"x.py"}, {{"HOME", "/h"}, {"PET_LOG_DIR", "~/l"}}).output.log_dir, "/h/l");
  EXPECT_EQ(MustParse({"--hosts=@~/hosts", "x.py"}, home).hosts_file, "/home/me/hosts");
  const rendezvous::Credentials files =
      MustParse({"--token-file=~/t", "--tls-cert=~/c", "--tls-key=~/k", "--tls-ca=~/a", "x.py"}, home).credentials;
  EXPECT_EQ(files.token_file + files.tls_cert + files.tls_key + files.tls_ca,
            "/home/me/t/home/me/c/home/me/k/home/me/a");
  EXPECT_EQ(MustParse({"--role=~/r", "x.py"}, home).role, "~/r") << "no path";
}

TEST(ParseOptions, Hostfile_IsNamedNotRead) { EXPECT_EQ(MustParse({"--hosts=@/x", "x.py"}).hosts_file, "/x"); }

TEST(ParseOptions, EverySwitch_IsTaken) {
  for (const Sample& sample : kSwitches) {
    EXPECT_FALSE(IsTaken(sample, MustParseAll({"x.py"})));
    for (const std::string& flag : Spellings(sample.name)) {
      EXPECT_TRUE(IsTaken(sample, MustParseAll({flag, "x.py"})));
      EXPECT_TRUE(IsTaken(sample, MustParseAll({flag + "=true", "x.py"})));
      EXPECT_FALSE(IsTaken(sample, MustParseAll({flag + "=0", "x.py"})));
      EXPECT_EQ(MustParse({flag, "x.py", "1"}).script, (Arguments{"x.py", "1"}));
    }
  }
}

TEST(ParseOptions, EveryFlagFromItsVariable_IsTaken) {
  for (const Flag& flag : Flags()) {
    const auto named = [&](const Sample& s) { return std::string(s.name) == flag.name; };
    const Sample* sample = std::find_if(std::begin(kSamples), std::end(kSamples), named);
    if (sample == std::end(kSamples)) sample = std::find_if(std::begin(kSwitches), std::end(kSwitches), named);
    EXPECT_TRUE(IsTaken(*sample, MustParseAll({"x.py"}, {{PetVariable(flag.name), sample->value}}))) << flag.name;
    EXPECT_FALSE(IsTaken(*sample, MustParseAll({"x.py"}, {{PetVariable(flag.name), ""}}))) << "empty counts as unset";
  }
}

TEST(ParseOptions, PreloadWithoutValue_IsAuto) {
  for (const Arguments& arguments :
       {Arguments{"--preload", "x.py", "arg"}, Arguments{"--preload=auto", "x.py", "arg"},
        Arguments{"--preload", "auto", "x.py", "arg"}, Arguments{"--preload", "--standalone", "x.py", "arg"}}) {
    const Options options = MustParse(arguments);
    EXPECT_EQ(options.preload, "auto");
    EXPECT_EQ(options.script, (Arguments{"x.py", "arg"}));
  }
  EXPECT_EQ(MustParse({"--preload", "none", "x.py"}).preload, "none");
  EXPECT_EQ(MustParse({"--preload=torch", "--preload=none", "x.py"}).preload, "none");
  EXPECT_EQ(MustParse({"x.py", "--preload", "torch", "y"}).preload, "");
  EXPECT_EQ(MustParse({"--preload", "-m", "package.module"}).script, Arguments{"package.module"});
}

TEST(ParseOptions, ShortFlags_AreTaken) {
  EXPECT_TRUE(MustParse({"-m", "pkg.train"}).module);
  EXPECT_EQ(MustParse({"-m", "pkg.train", "-m"}).script, (Arguments{"pkg.train", "-m"}));
  for (const Arguments& arguments :
       {Arguments{"-r", "3", "x"}, Arguments{"-r3", "x"}, Arguments{"-r=3", "x"}, Arguments{"-mr3", "x"}}) {
    EXPECT_EQ(MustParse(arguments).output.redirects.For(0), (StdStreams{true, true})) << arguments[0];
    EXPECT_EQ(MustParse(arguments).script, Arguments{"x"});
  }
  EXPECT_EQ(MustParse({"-t", "0:1", "x"}).output.tee.For(0), (StdStreams{true, false}));
}

TEST(ParseOptions, CommandLine_PrecedesVariablePrecedesDefault) {
  EXPECT_EQ(MustParse({"--nnodes=2", "x"}, {{"PET_NNODES", "3"}}).nnodes.max, 2);
  EXPECT_EQ(MustParse({"x"}, {{"PET_NNODES", "3"}}).nnodes.max, 3);
  EXPECT_EQ(MustParse({"--nnodes=2", "x"}, {{"PET_NNODES", "nonsense"}}).nnodes.max, 2);
  EXPECT_FALSE(MustParse({"--standalone=0", "x"}, {{"PET_STANDALONE", "1"}}).standalone);
  EXPECT_FALSE(MustParse({"x"}, {{"PET_STANDALONE", "false"}}).standalone);
}

TEST(ParseOptions, Origins_AreThoseOfTheValues) {
  const absl::StatusOr<ParseResult> result =
      Parse({"--nnodes=2", "--nnodes", "3", "-r3", "--standalone=0", "-m", "pkg"},
            {{"PET_NNODES", "4"}, {"PET_ROLE", "a"}, {"PET_RDZV_ID", ""}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "9"}});
  ASSERT_TRUE(result.ok()) << result.status();
  const Origins& origins = std::get<ParsedOptions>(*result).origins;
  const std::pair<const char*, const char*> kExpected[] = {
      {"nnodes", "--nnodes=3"},         {"redirects", "--redirects=3"},
      {"standalone", "--standalone=0"}, {"module", "--module"},
      {"role", "PET_ROLE=a"},           {"shutdown-timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=9"}};
  for (const auto& [flag, origin] : kExpected) {
    EXPECT_EQ(origins.Of(flag), origin);
    EXPECT_TRUE(origins.IsGiven(flag));
  }
  EXPECT_EQ(origins.Of("rdzv-id"), "default");
  EXPECT_FALSE(origins.IsGiven("rdzv-id"));
}

TEST(ParseOptions, ShutdownTimeout_HasASecondVariable) {
  const char* kTimeout = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  EXPECT_EQ(MustParse({"x"}, {{kTimeout, "600"}}).shutdown_timeout, absl::Seconds(600));
  EXPECT_EQ(MustParse({"x"}, {{kTimeout, ""}}).shutdown_timeout, std::nullopt);
  EXPECT_EQ(MustParse({"x"}, {{kTimeout, "600"}, {"PET_SHUTDOWN_TIMEOUT", "5"}}).shutdown_timeout, absl::Seconds(5));
  EXPECT_EQ(MustParse({"--shutdown-timeout=1", "x"}, {{kTimeout, "600"}}).shutdown_timeout, absl::Seconds(1));
}

TEST(ParseOptions, LogLinePrefixTemplate_HasASecondVariable) {
  const char* kPrefix = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
  EXPECT_EQ(MustParse({"x"}, {{kPrefix, "$rank:"}}).output.line_prefix, "$rank:");
  EXPECT_EQ(MustParse({"x"}, {{kPrefix, ""}}).output.line_prefix, kDefaultLinePrefix);
}

TEST(ParseOptions, KeepOrphansVariable_IsRead) {
  EXPECT_FALSE(MustParse({"x"}).keep_orphans);
  EXPECT_TRUE(MustParse({"x"}, {{"DDPRUN_KEEP_ORPHANS", "1"}}).keep_orphans);
  EXPECT_FALSE(MustParse({"x"}, {{"DDPRUN_KEEP_ORPHANS", "0"}}).keep_orphans);
  EXPECT_FALSE(MustParse({"x"}, {{"DDPRUN_KEEP_ORPHANS", ""}}).keep_orphans);
  EXPECT_EQ(MustParse({"x"}, {{"PET_NODE_COOLDOWN", ""}}).script, Arguments{"x"}) << "an empty one of a moved flag";
  EXPECT_EQ(MustParse({"x"}, {{"NNODES", "7"}, {"PET_TRAINING_SCRIPT", "y"}}).nnodes.max, 1);
}

TEST(ParseOptions, ScriptArguments_AreUntouched) {
  const Arguments kArguments[] = {
      {"x.py", "--help"},
      {"x.py", "--version", "-h"},
      {"x.py", "--nnodes", "7", "--nnodes=nonsense", "--no-such-flag"},
      {"x.py", "--", "a", "--"},
      {"x.py", "", "  ", "--lr=", "--=", "-", "---"},
      {"x.py", "[a,b]", "\"quoted\"", "'single'", "a\nb", "\xff", "{x}", "%s", "++", "--redirect=3"},
      {"/usr/bin/true"},
      {"./-odd"},
      {"-"},  // python reads its standard input
      {"1"},
      {"x=y"},
  };
  for (const Arguments& script : kArguments) {
    for (const Arguments& flags :
         {Arguments{}, Arguments{"--nnodes=2", "-m"}, Arguments{"--rdzv-id", "a"}, Arguments{"--"}}) {
      Arguments arguments = flags;
      arguments.insert(arguments.end(), script.begin(), script.end());
      EXPECT_EQ(MustParse(arguments).script, script) << script.back();
    }
  }
}

TEST(ParseOptions, DoubleDash_EndsTheFlags) {
  const Options options = MustParse({"--nnodes=2", "--", "--odd-name.py", "--nnodes=3"});
  EXPECT_EQ(options.script, (Arguments{"--odd-name.py", "--nnodes=3"}));
  EXPECT_EQ(options.nnodes.max, 2);
  EXPECT_TRUE(MustParse({"--show-config"}).script.empty());
}

TEST(ParseOptions, Help_NamesEveryFlagInReadableLines) {
  for (const Arguments& arguments : {Arguments{"--help"}, Arguments{"-h"}, Arguments{"--nnodes=nonsense", "--help"}}) {
    const absl::StatusOr<ParseResult> result = Parse(arguments);
    ASSERT_TRUE(result.ok()) << result.status();
    const std::string text = std::get<InfoText>(*result).text;
    for (const Flag& flag : Flags()) EXPECT_TRUE(absl::StrContains(text, absl::StrCat("--", flag.name))) << flag.name;
    EXPECT_FALSE(absl::StrContains(text, "--nproc_per_node"));
    EXPECT_TRUE(absl::StartsWith(text, "Usage: ddprun"));
    for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 115) << line;
  }
}

TEST(ParseOptions, Version_IsPrinted) {
  const absl::StatusOr<ParseResult> result = Parse({"--version"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::get<InfoText>(*result).text, absl::StrCat("ddprun ", kVersion, "\n"));
}

TEST(ParseOptions, EmptyValue_IsNotGivenAsInTorchrunElseAnError) {
  Arguments arguments = {"--rdzv-id", "", "x.py", "--lr="};
  for (const char* flag : {"--rdzv-id=", "--rdzv-endpoint=", "--rdzv_conf=", "--log-dir=", "--role=", "--local-addr=",
                           "--local-ranks-filter=", "--signals-to-handle=", "--duplicate-stdout-filters="})
    arguments.insert(arguments.begin(), flag);
  const Options options = MustParse(arguments);
  EXPECT_EQ(options.rdzv_id, std::nullopt);
  EXPECT_EQ(options.rdzv_endpoint, std::nullopt);
  EXPECT_EQ(options.output.log_dir, "");
  EXPECT_EQ(options.role, "default");
  EXPECT_EQ(options.signals_to_handle, Options().signals_to_handle);
  EXPECT_EQ(options.script, (Arguments{"x.py", "--lr="})) << "the script's own are not touched";
}

TEST(ParseOptions, SwitchesFromVariables_ZeroIsOff) {
  const Options options = MustParse({"x"}, {{"PET_NO_PYTHON", "1"}, {"PET_MODULE", "0"}});
  EXPECT_TRUE(options.no_python);
  EXPECT_FALSE(options.module);
}

TEST(ParseOptions, UninterruptibleStateTimeout_IsReadFromItsVariable) {
  const auto parsed = [](const char* value) { return MustParse({"x"}, {{kUninterruptibleVariable, value}}); };
  EXPECT_EQ(parsed("2.5").uninterruptible_timeout, absl::Seconds(2.5));
  for (const char* never : {"", "0", "-1"}) {
    EXPECT_EQ(parsed(never).uninterruptible_timeout, absl::ZeroDuration()) << never;
  }
  EXPECT_EQ(parsed("9").without_effect, Arguments{});
  const auto misspelt = ParseOptions({"x"}, [](const std::string& name) {
    return name == kUninterruptibleVariable ? std::optional<std::string>("60s") : std::nullopt;
  });
  EXPECT_TRUE(absl::StrContains(misspelt.status().message(), kUninterruptibleVariable)) << misspelt.status();
}

TEST(ParseOptions, VariablesWithoutEffect_AreNamed) {
  const auto notes = [](const Environment& variables) { return MustParse({"x.py"}, variables).without_effect; };
  EXPECT_EQ(notes({}).size(), 0);
  EXPECT_EQ(notes({{"TORCHELASTIC_ENABLE_FILE_TIMER", "0"}, {"TORCHELASTIC_HEALTH_CHECK_PORT", ""}}).size(), 0);
  for (const char* name :
       {"TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE"}) {
    ASSERT_EQ(notes({{name, "1"}}).size(), 1) << name;
    EXPECT_EQ(notes({{name, "1"}})[0].rfind(std::string(name) + " has no effect: ", 0), 0) << name;
  }
}

}  // namespace
}  // namespace ddprun::launcher
