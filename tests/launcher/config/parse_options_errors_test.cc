#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"

// Invalid command lines, each with words that its one-line message must contain.
namespace ddprun::launcher {
namespace {

struct BadInput {
  std::vector<std::string> arguments;
  std::vector<const char*> words;
  std::map<std::string, std::string> environment = {};
};

// Parses and resolves as main() does.
absl::Status ErrorOf(const BadInput& input) {
  const absl::StatusOr<ParseResult> result =
      ParseOptions(input.arguments, [&](const std::string& name) -> std::optional<std::string> {
        const auto found = input.environment.find(name);
        if (found == input.environment.end()) return std::nullopt;
        return found->second;
      });
  if (!result.ok()) return result.status();
  if (std::holds_alternative<InfoText>(*result)) return absl::OkStatus();
  return Resolve(std::get<ParsedOptions>(*result).options, HostFacts{.cpus = 4, .random_id = "random"}).status();
}

const std::vector<BadInput>& BadInputs() {
  static const auto& inputs = *new std::vector<BadInput>{
      // no script
      {{}, {"no script"}},
      {{"--nnodes=1"}, {"no script"}},
      {{"--"}, {"no script"}},
      {{""}, {"name of the script is empty"}},
      {{"-m"}, {"no script"}},
      // unknown flags
      {{"--nnode=2", "x"}, {"unknown flag", "--nnode", "did you mean --nnodes?"}},
      {{"--nnode", "2", "x"}, {"did you mean --nnodes?"}},
      {{"--redirect=3", "x"}, {"did you mean --redirects?"}},
      {{"--nproc", "2", "x"}, {"did you mean --nproc-per-node?"}},
      {{"--lr=0.1", "x"}, {"unknown flag", "--lr", "--help"}},
      {{"-x", "y"}, {"unknown flag", "-x"}},
      {{"-mx", "y"}, {"unknown flag"}},
      {{"---nnodes=2", "x"}, {"did you mean --nnodes?"}},
      {{"--=2", "x"}, {"unknown flag"}},
      {{"-nnodes=2", "x"}, {"did you mean --nnodes?"}},
      {{"--print-completion=tcsh", "x"}, {"--print-completion", "'tcsh'", "bash, zsh or fish"}},
      {{"--print-completion="}, {"--print-completion", "bash, zsh or fish"}},
      {{"--local-ranks-filter=0-3", "x"}, {"--local-ranks-filter", "'0-3'", "such as 0,1"}},
      {{"--duplicate-stdout-filters", ",", "x"}, {"--duplicate-stdout-filters", "no text"}},
      {{"--run-path=perhaps", "x"}, {"--run-path"}},
      {{"--nnodes=2", "--bogus", "--standalone", "x"}, {"unknown flag", "--bogus"}},
      {{"--bad\nflag", "x"}, {"unknown flag", "--bad\\nflag"}},
      // copied from a web page, or from a file with DOS line ends
      {{"\u2013nproc-per-node=2", "x"}, {"'\u2013nproc-per-node' (with an en dash)", "did you mean --nproc-per-node?"}},
      {{"\u2014standalone", "x"}, {"an em dash", "did you mean --standalone?"}},
      {{"--nnodes\u00a02", "x"}, {"'--nnodes\\u00a02' (with a no-break space)", "did you mean --nnodes?"}},
      {{"--nnodes=2\u00a0", "x"}, {"--nnodes", "'2\\u00a0' (with a no-break space)"}},
      {{"--rdzv-conf=\u201cjoin_timeout=5\u201d", "x"}, {"--rdzv-conf", "a typographic quotation mark"}},
      {{"--standalone\r", "x"}, {"'--standalone\\r'", "did you mean --standalone?"}},
      {{"--standalone", "\r"}, {"the script's name is '\\r'", "DOS line ends", "dos2unix"}},
      {{"train.py\r"}, {"'train.py\\r'", "dos2unix"}},
      {{"--nnodes=2\r3", "x"}, {"'2\\r3'"}},
      {{"--log-dir=~other/logs", "x"}, {"--log-dir: '~other/logs'", "write the whole path"}},
      {{"--log-dir=~/logs", "x"}, {"--log-dir: '~/logs'", "HOME is not set"}},
      // flags that have moved
      // missing values
      {{"--nnodes"}, {"--nnodes", "needs a value"}},
      {{"x", "--nnodes"}, {}},  // the script's own: no error, see below
      {{"--rdzv-id", "--nnodes=2", "x"}, {"--rdzv-id needs a value", "--nnodes=2"}},
      {{"--log-dir", "-m", "x"}, {"--log-dir needs a value", "-m"}},
      {{"--nnodes=", "--nproc-per-node=2", "x.py"}, {"--nnodes", "empty value"}},
      {{"--nnodes", "", "x.py"}, {"--nnodes", "empty value"}},
      {{"--master-addr=", "x.py"}, {"--master-addr", "empty value"}},
      {{"--rdzv-endpoint="}, {"no script"}},
      {{"--rdzv-endpoint=", "--bogus=", "x"}, {"unknown flag", "--bogus"}},
      {{"-r"}, {"-r", "needs a value"}},
      // values
      {{"--nnodes=x", "y"}, {"--nnodes", "'x'", "MIN:MAX"}},
      {{"--nnodes", "-1", "y"}, {"--nnodes", "'-1'"}},
      {{"--nnodes=4:2", "y"}, {"smaller number first"}},
      {{"--nproc-per-node=0", "y"}, {"--nproc-per-node", "cpu, gpu, xpu, hpu, npu or auto"}},
      {{"--nproc_per_node=gpu", "y"}, {"--nproc-per-node=gpu", "no NVIDIA GPU or AMD GPU", "/dev/nvidia*"}},
      {{"--nproc-per-node=999999", "y"}, {"1 to 4096"}},
      {{"--max-restarts=-1", "y"}, {"--max-restarts", "'-1'"}},
      {{"--on-hang=60", "y"}, {"--on-hang", "'60'", "report or restart"}},
      {{"--on-hang=restart:soon", "y"}, {"--on-hang", "'soon'", "seconds"}},
      {{"--role=a\nb", "y"}, {"--role"}},
      {{"--rdzv-backend=etcd", "y"}, {"--rdzv-backend", "'etcd'", "c10d or static"}},
      {{"--start-method=thread", "y"}, {"--start-method", "'thread'", "spawn, fork or forkserver"}},
      {{"--rdzv-endpoint=host:99999", "y"}, {"--rdzv-endpoint", "port", "65535"}},
      {{"--rdzv-endpoint=host:", "y"}, {"--rdzv-endpoint", "port"}},
      {{"--rdzv-endpoint=:29400", "y"}, {"host is missing"}},
      {{"--rdzv-endpoint=http://h:1", "y"}, {"scheme"}},
      {{"--rdzv-endpoint=[::1", "y"}, {"']' is missing"}},
      {{"--rdzv-endpoint=a:b:c", "y"}, {"several colons"}},
      {{"--rdzv-endpoint=a:1,,b:1", "y"}, {"--rdzv-endpoint", "host is missing"}},
      {{"--rdzv-endpoint=a:1,b:0", "y"}, {"'b:0'", "has a port"}},
      {{"--rdzv-endpoint=a:1,b:1", "--rdzv-conf=is_host=1", "y"}, {"is_host", "several endpoints"}},
      {{"--rdzv-endpoint=10.0.0:1", "y"}, {"IPv4"}},
      {{"--rdzv-conf=join_timeout", "y"}, {"--rdzv-conf", "KEY=VALUE"}},
      {{"--rdzv-conf=join_timeuot=3", "y"}, {"unknown key 'join_timeuot'", "join_timeout", "last_call_timeout"}},
      {{"--rdzv-conf=join_timeout=soon", "y"}, {"join_timeout: 'soon'", "seconds"}},
      {{"--rdzv-conf=rank=1,rank=1", "y"}, {"rank", "twice"}},
      {{"--rdzv-conf=restart_window=-1", "y"}, {"--rdzv-conf: restart_window: ", "negative"}},
      {{"--rdzv-conf=max_failures_at_step=-1", "y"}, {"--rdzv-conf: max_failures_at_step: '-1'"}},
      {{"--node-rank=-1", "y"}, {"--node-rank", "'-1'"}},
      {{"--master-addr=host:29500", "y"}, {"--master-addr", "no port"}},
      {{"--master-port=0", "--nnodes=2", "y"}, {"--master-port=0", "cannot know port 0"}},
      {{"--master-port=1234", "--port-range=20000-20100", "y"}, {"--master-port=1234", "--port-range=20000-20100"}},
      {{"--master-port=99999", "y"}, {"0 to 65535"}},
      {{"--port-range=20000", "y"}, {"--port-range", "'20000'", "FIRST-LAST"}},
      {{"--port-range=0-70000", "y"}, {"--port-range", "1 to 65535"}},
      {{"y"}, {"PET_PORT_RANGE", "'all'"}, {{"PET_PORT_RANGE", "all"}}},
      {{"--nnodes=2", "--rdzv-endpoint=h:29400", "--rdzv-conf=is_host=1", "--port-range=20000-20100", "y"},
       {"h:29400", "--port-range=20000-20100"}},
      {{"--local-addr=a b", "y"}, {"--local-addr"}},
      {{"--redirects=4", "y"}, {"--redirects", "'4'"}},
      {{"--redirects=0:1,0:2", "y"}, {"named twice"}},
      {{"-t", "x:1", "y"}, {"--tee", "local rank"}},
      {{"--monitor-interval=0", "y"}, {"--monitor-interval", "more than 0"}},
      {{"--shutdown-timeout=-5", "y"}, {"--shutdown-timeout", "negative"}},
      {{"--shutdown-timeout=30s", "y"}, {"'30s'", "seconds"}},
      {{"--signals-to-handle=SIGKILL", "y"}, {"--signals-to-handle", "SIGKILL can't be handled"}},
      {{"--standalone=perhaps", "y"}, {"--standalone", "'perhaps'"}},
      {{"--module", "--no-python", "y"}, {"--module and --no-python"}},
      {{"--module", "y"}, {"--module and --no-python"}, {{"PET_NO_PYTHON", "1"}}},
      // variables: the message names them
      {{"y"}, {"DDPRUN_KEEP_ORPHANS", "'perhaps'"}, {{"DDPRUN_KEEP_ORPHANS", "perhaps"}}},
      {{"y"}, {"PET_NNODES", "'two'"}, {{"PET_NNODES", "two"}}},
      {{"y"}, {"PET_STANDALONE", "'on'"}, {{"PET_STANDALONE", "on"}}},
      {{"y"}, {"PET_RDZV_ENDPOINT", "port"}, {{"PET_RDZV_ENDPOINT", "h:p"}}},
      {{"y"}, {"PET_NPROC_PER_NODE"}, {{"PET_NPROC_PER_NODE", "-3"}}},
      {{"y"}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "'x'"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x"}}},
      // together
      {{"--nnodes=2", "y"}, {"--nnodes=2 needs --rdzv-endpoint=HOST[:PORT]", "separate job"}},
      {{"--nnodes=1:4", "--rdzv-backend=c10d", "y"}, {"--nnodes=1:4 needs --rdzv-endpoint"}},
      {{"--standalone", "--nnodes=2", "y"}, {"--standalone is for one node", "--nnodes=2"}},
      {{"--standalone", "--nnodes=1:2", "y"}, {"--nnodes=1:2"}},
      {{"--nnodes=2", "--rdzv-endpoint=h:0", "y"}, {"port 0"}},
      {{"--nnodes=2", "--rdzv-endpoint=h", "--node-rank=2", "y"}, {"--node-rank=2", "0 to 1"}},
      {{"--node-rank=1", "y"}, {"--node-rank=1", "0 to 0"}},
      {{"--nnodes=2", "--rdzv-endpoint=h", "--rdzv-conf=rank=5", "y"}, {"--node-rank=5"}},
  };
  return inputs;
}

TEST(BadInput, EveryCase_IsOneLineWithTheProblem) {
  for (const BadInput& input : BadInputs()) {
    const absl::Status status = ErrorOf(input);
    std::string shown;
    for (const std::string& argument : input.arguments) shown += argument + " ";
    SCOPED_TRACE(shown + "-> " + std::string(status.message()));
    if (input.words.empty()) {
      EXPECT_TRUE(status.ok());
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(absl::StrContains(status.message(), '\n'));
    EXPECT_LE(status.message().size(), 400);
    for (const char* word : input.words) EXPECT_TRUE(absl::StrContains(status.message(), word)) << word;
  }
}

TEST(BadInput, HugeArgument_IsAShortLine) {
  for (const std::string& huge :
       {std::string(1 << 20, 'x'), std::string(1 << 20, ','), std::string(1 << 20, ':'), std::string(1 << 20, '1')}) {
    for (const char* flag : {"--nnodes=", "--rdzv-endpoint=", "--rdzv-conf=", "--redirects=", "--signals-to-handle=",
                             "--rdzv-id=", "--", "--shutdown-timeout="}) {
      const absl::Status status = ErrorOf({{flag + huge, "x"}, {}});
      EXPECT_FALSE(status.ok()) << flag;
      EXPECT_LE(status.message().size(), 400) << flag;
      EXPECT_FALSE(absl::StrContains(status.message(), '\n'));
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
