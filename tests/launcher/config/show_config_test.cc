#include "launcher/config/show_config.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

std::string Show(const Words& arguments, const ClusterEnvironment& found = {}, HostFacts facts = {}) {
  facts.random_id = "fresh";
  absl::StatusOr<ParseResult> parsed =
      ParseOptions(arguments, [](const std::string& name) -> std::optional<std::string> {
        if (name == "PET_ROLE") return "trainer";
        return std::nullopt;
      });
  if (!parsed.ok()) return parsed.status().ToString();
  auto& [options, origins, given] = std::get<ParsedOptions>(*parsed);
  absl::StatusOr<ClusterEnvironment> merged = MergeEnvironment(found, &options, &origins);
  if (!merged.ok()) return merged.status().ToString();
  absl::StatusOr<LaunchConfig> config = Resolve(options, facts, *merged);
  if (!config.ok()) return config.status().ToString();
  return ShowConfig(*config, origins, absl::UTCTimeZone());
}

ClusterEnvironment Step(int index) {
  ClusterEnvironment s;
  s.starter = ClusterEnvironment::Starter::kSlurm;
  s.description = absl::StrCat("step 0 of SLURM job 12, node ", index + 1, " of 2");
  s.nnodes = {2, "SLURM_STEP_NUM_NODES=2"};
  s.node_index = {index, absl::StrCat("SLURM_NODEID=", index)};
  s.gpus = {4, "SLURM_GPUS_ON_NODE=4"};
  s.endpoint = {Endpoint{"node1", 21234}, "first host of SLURM_STEP_NODELIST=node[1-2]; port from job 12, step 0"};
  s.job_id = {"12", "SLURM_JOB_ID=12"};
  s.topology = {"s1", "SLURM_TOPOLOGY_ADDR=s1.node1"};
  s.host = {"node1", "SLURMD_NODENAME=node1"};
  s.hosts = {"node1", "node2"};
  s.batch = BatchSystem{"12", true, absl::Seconds(30), absl::FromUnixSeconds(1'700'000'000), 1};
  return s;
}

TEST(ShowConfig, StepOfTwoNodes_EverySettingHasItsOrigin) {
  HostFacts facts;
  facts.cpus = 2;
  EXPECT_EQ(
      Show({"--show-config", "--max-restarts=3", "--rdzv-conf=join_timeout=60", "-r", "0:3", "train.py", "--lr", "1"},
           Step(0), facts),
      R"(started by            step 0 of SLURM job 12, node 1 of 2
nnodes                2                                     SLURM_STEP_NUM_NODES=2
nproc-per-node        4                                     SLURM_GPUS_ON_NODE=4
accelerators          none                                  device files
max-restarts          3                                     --max-restarts=3
role                  trainer                               PET_ROLE=trainer
rdzv-id               12                                    SLURM_JOB_ID=12
rdzv-endpoint         node1:21234                           first host of SLURM_STEP_NODELIST=node[1-2]; port from job 12, step 0
rendezvous server     hosted by this launcher               SLURM_NODEID=0
host                  node1                                 SLURMD_NODENAME=node1
local-addr            that of the route to the endpoint     default
topology              s1                                    SLURM_TOPOLOGY_ADDR=s1.node1
expected hosts        node1, node2                          the job's nodes
port-range            any                                   default
join_timeout          1m                                    --rdzv-conf=join_timeout=60
last_call_timeout     30s                                   default
heartbeat_timeout     3s                                    default
reconnect_timeout     30m (hosted server: 30s)              default
reconnect_grace       80ms                                  default
restart_window        0                                     default
restart_backoff       0                                     default
max_failures_at_step  3                                     default
node_cooldown         1m                                    default
workers               python3 or python -u train.py --lr 1  a Python script
log-dir               none                                  default
redirects             0:3                                   --redirects=0:3
tee                   none                                  default
signals-to-handle     SIGTERM,SIGINT,SIGHUP,SIGQUIT         default
signals passed on     SIGUSR1,SIGUSR2                       warnings, unless in --signals-to-handle
shutdown-timeout      27s                                   default, but not more than the kill wait leaves
kill wait             30s                                   from the batch system's SIGTERM to its SIGKILL
end time              2023-11-14 22:13:20 +00:00            when the job's time is over
requeues              1                                     job 12
note: 4 workers share 2 CPUs, all that SLURM lets this task use: give srun itself --cpus-per-task=N (srun does not inherit sbatch's)
)");
}

TEST(ShowConfig, RestartRules_HaveTheOriginOfRdzvConf) {
  const std::string shown = Show({"--show-config",
                                  "--rdzv-conf=restart_window=3600,restart_backoff=2,max_failures_at_step=0,"
                                  "node_cooldown=90"});
  for (const char* line : {"restart_window        1h", "restart_backoff       2s", "max_failures_at_step  0",
                           "node_cooldown         1m30s"}) {
    EXPECT_THAT(shown, ContainsRegex(absl::StrCat(line, " +--rdzv-conf=restart_window")));
  }
}

TEST(ShowConfig, Preload_IsShownIfGiven) {
  EXPECT_THAT(Show({"--show-config", "--preload", "train.py"}), ContainsRegex("preload +auto +--preload=auto\n"));
  EXPECT_THAT(Show({"--show-config", "train.py"}), Not(HasSubstr("preload")));
}

TEST(ShowConfig, HangsAndOrphans_AreShownIfNotTheDefault) {
  EXPECT_THAT(Show({"--show-config"}), Not(HasSubstr("on-hang")));
  EXPECT_THAT(Show({"--show-config", "--on-end=mail me", "--result=r.json"}),
              AllOf(ContainsRegex("\non-end +mail me +--on-end=mail me\n"),
                    ContainsRegex("\nresult +r.json +--result=r.json\n")));
  EXPECT_THAT(Show({"--show-config", "--on-hang=restart:90"}),
              ContainsRegex("on-hang               restart, limit 1m30s +--on-hang=restart:90\n"));
}

TEST(ShowConfig, ServerPlace_IsShown) {
  EXPECT_THAT(Show({"--show-config"}, Step(1)), HasSubstr("this launcher connects to it"));
  EXPECT_THAT(Show({"--show-config"}), HasSubstr("in this process, no port"));
  EXPECT_THAT(Show({"--show-config", "--nnodes=2", "--rdzv-endpoint=h"}), HasSubstr("hosted by that host's launcher"));
  EXPECT_THAT(Show({"--show-config", "--nnodes=2", "--rdzv-endpoint=a,b"}),
              HasSubstr(" default with several endpoints\n"));
  EXPECT_THAT(Show({"--show-config", "--nnodes=2", "--master-addr=h"}), HasSubstr("--master-addr=h, port: default"));
}

TEST(ShowConfig, Workers_AreShownAsTheyWouldBeStarted) {
  EXPECT_THAT(Show({"--show-config"}), HasSubstr("no script is given"));
  HostFacts facts;
  facts.script = {"#!/bin/sh\n", true};
  EXPECT_THAT(Show({"--show-config", "train", "-x"}, {}, facts),
              AllOf(HasSubstr("./train -x"), HasSubstr("the file is a program")));
  EXPECT_THAT(Show({"--show-config", "--no-python", "train"}), HasSubstr("--no-python\n"));
}

TEST(ShowConfig, HostileTexts_StayOnTheirLines) {
  ClusterEnvironment s = Step(0);
  s.description = "a\nb";
  s.host->value = "node\x1b[2J";
  const std::string shown = Show({"--show-config", "a\nb"}, s);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 34) << shown;
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace ddprun::launcher
