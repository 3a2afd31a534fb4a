#include "launcher/config/launch_config.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "absl/strings/str_join.h"
#include "launcher/config/parse_options.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

HostFacts Facts() {
  HostFacts facts{.cpus = 4, .random_id = "fresh"};
  facts.devices.devices[kNvidia] = {{.index = 0, .node = 0}, {.index = 1, .node = 1}};
  return facts;
}

LaunchConfig MustResolve(Words flags, const HostFacts& facts = Facts(), Words script = {"train.py", "--lr", "1"}) {
  flags.insert(flags.end(), script.begin(), script.end());
  const absl::StatusOr<ParseResult> parsed = ParseOptions(flags, [](const std::string&) { return std::nullopt; });
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return LaunchConfig();
  const absl::StatusOr<LaunchConfig> config = Resolve(std::get<ParsedOptions>(*parsed).options, facts);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(LaunchConfig());
}

TEST(Resolve, OneNodeWithoutEndpoint_ServerIsInProcess) {
  for (const Words& flags : {Words{}, Words{"--standalone"}, Words{"--nnodes=1:1", "--rdzv-backend=c10d"},
                             Words{"--rdzv-endpoint=localhost:0"}, Words{"--standalone", "--rdzv-endpoint=h:1"},
                             Words{"--master-port=29501"}, Words{"--node-rank=0", "--master-addr=127.0.0.1"}}) {
    const LaunchConfig config = MustResolve(flags);
    EXPECT_EQ(config.server_place, ServerPlace::kInProcess);
    EXPECT_EQ(config.job_id, "fresh");
    EXPECT_EQ(config.settings.max_nodes(), 1);
  }
}

// A launcher that hosts the server passes its settings without encoding, which would drop fractions of nanoseconds.
TEST(Resolve, DurationsWithManyDigits_HaveWholeNanoseconds) {
  const std::string third = "3.33333333333333";
  const rendezvous::JobSettings settings =
      MustResolve({"--rdzv-conf=restart_window=" + third + ",restart_backoff=" + third + ",node_cooldown=" + third +
                   ",join_timeout=" + third + ",last_call_timeout=" + third + ",keep_alive_interval=" + third +
                   ",reconnect_grace=" + third})
          .settings;
  for (const absl::Duration duration :
       {ToDuration(settings.restart_window()), ToDuration(settings.restart_backoff()),
        ToDuration(settings.node_cooldown()), ToDuration(settings.join_timeout()), ToDuration(settings.last_call()),
        ToDuration(settings.heartbeat_timeout()) / 3, ToDuration(settings.reconnect_grace())}) {
    EXPECT_EQ(duration, absl::Seconds(3) + absl::Nanoseconds(333'333'333));
  }
}

TEST(Resolve, SeveralNodes_ServerIsPlacedByEndpointAndRank) {
  using Place = ServerPlace;
  const struct {
    Words flags;
    Endpoint endpoint;
    Place place;
    std::optional<int> node_rank;
  } kCases[] = {
      {{"--nnodes=1:4", "--rdzv-endpoint=h"}, {"h", 29400}, Place::kHereIfLocal, {}},
      {{"--rdzv-endpoint=h:5"}, {"h", 5}, Place::kHereIfLocal, {}},  // one node, given server
      {{"--nnodes=2", "--rdzv-endpoint=h", "--rdzv-conf=is_host=1"}, {"h", 29400}, Place::kHere, {}},
      {{"--nnodes=2", "--rdzv-endpoint=h", "--rdzv-conf=is_host=0"}, {"h", 29400}, Place::kElsewhere, {}},
      {{"--nnodes=3", "--rdzv-endpoint=h", "--rdzv-conf=rank=1"}, {"h", 29400}, Place::kHereIfLocal, 1},
      {{"--nnodes=3", "--rdzv-endpoint=h", "--rdzv-conf=rank=1", "--node-rank=2"},
       {"h", 29400},
       Place::kHereIfLocal,
       2},
      // Static style: at the master.
      {{"--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1"}, {"10.0.0.1", 29500}, Place::kHereIfLocal, 0},
      {{"--nnodes=2", "--node-rank=1", "--master-addr=m", "--master-port=1234"}, {"m", 1234}, Place::kElsewhere, 1},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(absl::StrJoin(c.flags, " "));
    const LaunchConfig config = MustResolve(c.flags);
    EXPECT_EQ(config.endpoint, c.endpoint);
    EXPECT_EQ(config.server_place, c.place);
    EXPECT_EQ(config.node_rank, c.node_rank);
    EXPECT_THAT(config.notes, IsEmpty());
  }
  const LaunchConfig config = MustResolve({"--nnodes=2", "--master-port=1234"});
  EXPECT_EQ(config.endpoint, (Endpoint{"127.0.0.1", 1234}));
  EXPECT_EQ(config.server_place, Place::kHereIfLocal);
  EXPECT_EQ(config.node_rank, std::nullopt);
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("127.0.0.1:1234")));
}

TEST(Resolve, SeveralEndpoints_ServerIsElsewhere) {
  const LaunchConfig config = MustResolve({"--nnodes=2", "--rdzv-endpoint=a,b:5,[::1]:6"});
  EXPECT_EQ(config.endpoint, (Endpoint{"a", 29400}));
  EXPECT_EQ(config.more_endpoints, (std::vector<Endpoint>{{"b", 5}, {"::1", 6}}));
  EXPECT_EQ(config.server_place, ServerPlace::kElsewhere);
  EXPECT_EQ(ServersText(config), "a:29400,b:5,[::1]:6");
  EXPECT_EQ(config.options.rdzv_conf.reconnect_timeout, std::nullopt);
  const auto heartbeat_timeout = [](const Words& flags) {
    return ToDuration(MustResolve(flags).settings.heartbeat_timeout());
  };
  EXPECT_EQ(heartbeat_timeout({"--nnodes=2", "--rdzv-endpoint=a,b"}), absl::Seconds(10)) << "longer than a takeover";
  EXPECT_EQ(heartbeat_timeout({"--nnodes=2", "--rdzv-endpoint=a"}), absl::Seconds(3));
  EXPECT_EQ(heartbeat_timeout({"--nnodes=2", "--rdzv-endpoint=a,b", "--rdzv-conf=heartbeat_timeout=3"}),
            absl::Seconds(3));
}

TEST(Resolve, JobId_IsKeptIfGiven) {
  EXPECT_EQ(MustResolve({"--rdzv-id=j"}).job_id, "j");
  EXPECT_EQ(MustResolve({"--nnodes=2", "--rdzv-endpoint=h"}).job_id, "none");
  EXPECT_EQ(MustResolve({"--nnodes=2", "--rdzv-endpoint=h", "--rdzv-id=j"}).job_id, "j");
}

TEST(Resolve, FewFlags_DefaultsAreFilledIn) {
  EXPECT_EQ(MustResolve({}).settings, rendezvous::DefaultSettings());
  EXPECT_EQ(MustResolve({}).slots, 1);
  EXPECT_EQ(MustResolve({"--nproc-per-node=cpu"}).slots, 4);
  EXPECT_EQ(MustResolve({"--nproc-per-node=gpu"}).slots, 2);
  EXPECT_THAT(MustResolve({}).warning_signals, ElementsAre(SIGUSR1, SIGUSR2));
  EXPECT_THAT(MustResolve({"--signals-to-handle=SIGTERM,SIGUSR1"}).warning_signals, ElementsAre(SIGUSR2));
}

TEST(Resolve, NodeRankBesideEndpoint_DoesNotPlaceTheServer) {
  const LaunchConfig config = MustResolve({"--nnodes=2", "--rdzv-endpoint=h", "--node-rank=1", "--master-addr=m"});
  EXPECT_EQ(config.endpoint.host, "h");
  EXPECT_EQ(config.server_place, ServerPlace::kHereIfLocal);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_EQ(config.notes.size(), 1) << "--master-addr has no effect";
}

TEST(Resolve, MasterAddressInOneNodeJob_IsTheStoresAddress) {
  for (const Words& flags : {Words{}, Words{"--standalone"}, Words{"--rdzv-endpoint=localhost:0"}}) {
    Words all = flags;
    all.insert(all.end(), {"--master-addr=node0", "--master-port=1234"});
    const LaunchConfig config = MustResolve(all);
    EXPECT_EQ(config.store_host, "node0");
    EXPECT_EQ(config.store_port, 1234);
    EXPECT_TRUE(config.notes.empty());
  }
  EXPECT_EQ(MustResolve({"--master-port=0"}).store_port, 0);
  EXPECT_EQ(MustResolve({}).store_host, "");
}

TEST(Resolve, MasterPortBesideEndpoint_IsTheStoresPort) {
  EXPECT_EQ(MustResolve({"--nnodes=2", "--rdzv-endpoint=h:29400", "--master-port=29500"}).store_port, 29500);
  EXPECT_EQ(MustResolve({"--nnodes=2", "--rdzv-endpoint=h:29400", "--master-port=29400"}).store_port, 0);
  EXPECT_EQ(MustResolve({"--nnodes=2", "--master-addr=h", "--master-port=29500"}).store_port, 0) << "the server's";
}

TEST(Resolve, NumaBinding_GivesEachWorkerItsCpus) {
  HostFacts facts = Facts();
  facts.topology = CpuTopology{.cpus = {{0, {.node = 0}}, {1, {.node = 1}}}};
  EXPECT_TRUE(MustResolve({"--nproc-per-node=2"}, facts).cpus.empty());
  EXPECT_EQ(MustResolve({"--numa-binding=node", "--nproc-per-node=2"}, facts).cpus,
            (std::vector<std::vector<int>>{{0}, {1}}));
  facts.topology = absl::UnavailableError("why");
  Options options{.cpu_binding = CpuBinding::kNode, .script = {"x.py"}};
  EXPECT_EQ(Resolve(options, facts, {}).status().message(), "--numa-binding: why");
}

TEST(Resolve, ScriptFromStandardInput_IsRunByPython) {
  HostFacts facts = Facts();
  const LaunchConfig config = MustResolve({}, facts, {"-", "a"});
  EXPECT_EQ(config.command.arguments, (Words{"-u", "-", "a"}));
  EXPECT_EQ(config.command.script, "");
  EXPECT_TRUE(config.command.python);
  EXPECT_TRUE(config.notes.empty());
}

TEST(Resolve, JobSettings_AreFilled) {
  const LaunchConfig config = MustResolve(
      {"--nnodes=2:3", "--rdzv-endpoint=h", "--max-restarts=5", "--local-addr=10.0.0.9", "--role=trainer",
       "--rdzv-conf=join_timeout=1,last_call_timeout=2,heartbeat_timeout=3,reconnect_grace=4,reconnect_timeout=5,"
       "restart_window=6,restart_backoff=7,max_failures_at_step=8,node_cooldown=9"});
  EXPECT_EQ(config.settings, TextProto(R"pb(min_nodes: 2
                                            max_nodes: 3
                                            max_restarts: 5
                                            restart_window { seconds: 6 }
                                            restart_backoff { seconds: 7 }
                                            max_failures_at_step: 8
                                            node_cooldown { seconds: 9 }
                                            join_timeout { seconds: 1 }
                                            last_call { seconds: 2 }
                                            heartbeat_timeout { seconds: 3 }
                                            reconnect_grace { seconds: 4 })pb",
                                       rendezvous::DefaultSettings()));
  EXPECT_EQ(config.options.rdzv_conf.reconnect_timeout, absl::Seconds(5));
  EXPECT_EQ(config.options.local_addr, "10.0.0.9");
  EXPECT_EQ(config.options.role, "trainer");
}

TEST(Resolve, Script_IsRunByPython) {
  LaunchConfig config = MustResolve({});
  EXPECT_EQ(config.command.programs, (Words{"python3", "python"}));
  EXPECT_EQ(config.command.arguments, (Words{"-u", "train.py", "--lr", "1"}));
  EXPECT_EQ(config.entrypoint, "train.py");
  EXPECT_TRUE(config.command.python);

  HostFacts facts = Facts();
  facts.python.python_exec = "nsys profile python3";
  config = MustResolve({}, facts);
  EXPECT_EQ(config.command.programs, Words{"nsys"});
  EXPECT_EQ(config.command.arguments, (Words{"profile", "python3", "-u", "train.py", "--lr", "1"}));
  facts.python.python_exec = "python3 '";
  EXPECT_EQ(Resolve(Options{.script = {"train.py"}}, facts, {}).status().message(),
            "PYTHON_EXEC=python3 ': unterminated quote");
}

TEST(Resolve, ModuleAndProgram_AreRunAsSuch) {
  EXPECT_EQ(MustResolve({"-m"}, Facts(), {"pkg.train", "-x"}).command.arguments,
            (Words{"-u", "-m", "pkg.train", "-x"}));
  const LaunchConfig config = MustResolve({"--no-python"}, Facts(), {"./train", "-x", ""});
  EXPECT_EQ(config.command.programs, Words{"./train"});
  EXPECT_EQ(config.command.arguments, (Words{"-x", ""}));
  EXPECT_EQ(config.entrypoint, "./train");
}

TEST(Resolve, ScriptThatIsAProgram_IsRunAsOne) {
  HostFacts facts = Facts();
  facts.script = {"#!/bin/sh\n", true};
  LaunchConfig config = MustResolve({}, facts, {"./train", "-x"});
  EXPECT_EQ(config.command.programs, Words{"./train"});
  EXPECT_EQ(config.command.arguments, Words{"-x"});
  EXPECT_EQ(config.command.script, "");
  EXPECT_EQ(MustResolve({}, facts, {"train"}).command.programs, Words{"./train"}) << "the one here, not one of PATH";
  EXPECT_EQ(MustResolve({"--no-python"}, facts, {"train"}).command.programs, Words{"train"});
  EXPECT_EQ(MustResolve({"-m"}, facts, {"train"}).command.arguments, (Words{"-u", "-m", "train"}));
  EXPECT_EQ(MustResolve({}, facts, {"train.py"}).command.script, "train.py");
}

TEST(Resolve, NoSuchScriptButAProgramInPath_IsRunAsOne) {
  HostFacts facts = Facts();
  facts.script.in_path = "/usr/bin/env";
  const LaunchConfig config = MustResolve({}, facts, {"env", "A=1", "./train"});
  EXPECT_EQ(config.command.programs, Words{"env"});
  EXPECT_EQ(config.command.arguments, (Words{"A=1", "./train"}));
  EXPECT_EQ(config.notes, Words{"no script 'env' is here: running the program /usr/bin/env, as with --no-python"});
  EXPECT_EQ(MustResolve({"--no-python"}, facts, {"env"}).notes, Words{});
  EXPECT_EQ(MustResolve({}, facts, {"train.py"}).command.script, "train.py") << "a missing script, even if PATH has it";
  EXPECT_EQ(MustResolve({"-m"}, facts, {"env"}).command.arguments, (Words{"-u", "-m", "env"}));
}

TEST(Resolve, PreloadNone_IsEmpty) {
  EXPECT_EQ(MustResolve({}).preload, "");
  EXPECT_EQ(MustResolve({"--preload=none"}).preload, "");
  EXPECT_EQ(MustResolve({"--preload=torch"}).preload, "torch");
}

TEST(Resolve, VirtualLocalRank_DevicesAreTheVisibleOnes) {
  HostFacts facts = Facts();
  EXPECT_EQ(MustResolve({"--nproc-per-node=2"}, facts).devices, Words{});
  EXPECT_EQ(MustResolve({"--nproc-per-node=2", "--virtual-local-rank"}, facts).devices, (Words{"0", "1"}));
  facts.devices.lists["CUDA_VISIBLE_DEVICES"] = "3, GPU-5,6";
  EXPECT_EQ(MustResolve({"--nproc-per-node=2", "--virtual-local-rank"}, facts).devices, (Words{"3", "GPU-5", "6"}));
  facts.devices = {.lists = {{"HIP_VISIBLE_DEVICES", "3"}}};
  const absl::Status few =
      Resolve(Options{.nproc_per_node = {.number = 2}, .virtual_local_rank = true}, facts).status();
  EXPECT_TRUE(absl::IsInvalidArgument(few));
  EXPECT_THAT(few.message(), HasSubstr("HIP_VISIBLE_DEVICES=3 has 1 device for 2 workers"));
}

TEST(Resolve, OneWorkerForEachDevice_NoteHasTheReason) {
  HostFacts facts = Facts();
  EXPECT_EQ(MustResolve({"--nproc-per-node=3"}, facts).slots, 3);
  EXPECT_EQ(MustResolve({"--nproc-per-node=cpu"}, facts).slots, 4);
  EXPECT_EQ(MustResolve({"--nproc-per-node=gpu"}, facts).slots, 2);
  EXPECT_EQ(MustResolve({"--nproc-per-node=auto"}, facts).slots, 2);
  EXPECT_EQ(MustResolve({"--nproc-per-node=auto"}, facts).notes, Words{});
  facts.devices = {.not_counted = "1 integrated Intel GPU"};
  const LaunchConfig config = MustResolve({"--nproc-per-node=auto"}, facts);
  EXPECT_EQ(config.slots, 4);
  EXPECT_THAT(config.notes, ElementsAre(AllOf(HasSubstr("--nproc-per-node=auto: this node has no accelerator"),
                                              HasSubstr("but 1 integrated Intel GPU: 4 workers, one for each CPU"))));
  const auto error = [&](const char* count) {
    const ProcessCount processes = ParseProcessCount(count).value();
    return std::string(Resolve(Options{.nproc_per_node = processes}, facts).status().message());
  };
  EXPECT_EQ(error("gpu"),
            "--nproc-per-node=gpu: this node has no NVIDIA GPU or AMD GPU (looked for /dev/nvidia*, /dev/dxg, "
            "/dev/kfd), but 1 integrated Intel GPU: give a number, or cpu");
  facts.devices.lists["CUDA_VISIBLE_DEVICES"] = "all";
  EXPECT_THAT(error("auto"), HasSubstr("--nproc-per-node=auto: CUDA_VISIBLE_DEVICES=all is not a list of devices"));
}

TEST(Resolve, OutputFlags_WithoutEffect_AreNoted) {
  EXPECT_EQ(MustResolve({"--tee=3", "--duplicate-stdout-filters=x", "--local-ranks-filter=0"}).notes, Words{});
  EXPECT_EQ(MustResolve({"--duplicate-stderr-filters=x"}).notes.size(), 1u);
  EXPECT_EQ(MustResolve({"--local-ranks-filter=1,2"}).notes.size(), 1u) << "one worker, whose local rank is 0";
  EXPECT_EQ(MustResolve({"--local-ranks-filter=global:1,2"}).notes, Words{}) << "other nodes may have them";
  EXPECT_EQ(MustResolve({"--run-path", "--logs-specs=x"}).notes.size(), 2u);
}

TEST(Resolve, PortRange_ServerOutsideOfIt_IsAnError) {
  const LaunchConfig config = MustResolve({"--nnodes=2", "--rdzv-endpoint=h", "--port-range=1-9"});
  EXPECT_EQ(config.server_place, ServerPlace::kHereIfLocal) << "another host may serve at any port";
  EXPECT_TRUE(absl::IsInvalidArgument(CheckHostedPort(config)));
}

TEST(Resolve, OutputFlags_RanksWithoutWorker_AreNoted) {
  LaunchConfig config = MustResolve({"--log-dir=/logs", "-r", "0:3,7:1", "-t", "2"});
  EXPECT_EQ(config.options.output.log_dir, "/logs");
  EXPECT_FALSE(config.options.output.no_files);
  EXPECT_EQ(config.options.output.redirects.For(0), (StdStreams{true, true}));
  EXPECT_EQ(config.options.output.tee.For(0), (StdStreams{false, true}));
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("local rank 7")));

  config = MustResolve({"--log-dir=/dev/null", "-r3"});
  EXPECT_TRUE(config.options.output.no_files);
  EXPECT_EQ(config.options.output.log_dir, "");
  EXPECT_EQ(config.notes.size(), 1);
}

LaunchConfig ResolveInBatch(absl::Duration kill_wait, std::optional<absl::Duration> shutdown_timeout = std::nullopt) {
  Options options;
  options.script = {"train.py"};
  options.shutdown_timeout = shutdown_timeout;
  ClusterEnvironment cluster;
  cluster.batch = BatchSystem{.job = "7", .kill_wait = kill_wait};
  return Resolve(options, Facts(), cluster).value();
}

TEST(Resolve, ShutdownTimeout_UnderABatchSystem_EndsBeforeItsSigkill) {
  EXPECT_EQ(MustResolve({}).shutdown_timeout, absl::Seconds(30));
  const std::pair<double, double> kCases[] = {{30, 27}, {8, 7}, {1, 0.5}, {0, 0}, {600, 30}};
  for (const auto& [kill_wait, expected] : kCases) {
    EXPECT_EQ(ResolveInBatch(absl::Seconds(kill_wait)).shutdown_timeout, absl::Seconds(expected)) << kill_wait;
  }
}

TEST(Resolve, ShutdownTimeout_LongerThanKillWait_IsNoted) {
  LaunchConfig config = ResolveInBatch(absl::Seconds(30), absl::Seconds(30));
  EXPECT_EQ(config.shutdown_timeout, absl::Seconds(30));
  EXPECT_THAT(config.notes, IsEmpty());
  config = ResolveInBatch(absl::Seconds(30), absl::Seconds(60));
  EXPECT_EQ(config.shutdown_timeout, absl::Seconds(60));
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("--shutdown-timeout=60 is longer")));
}

}  // namespace
}  // namespace ddprun::launcher
