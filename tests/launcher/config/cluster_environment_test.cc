#include "launcher/config/cluster_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

// Result of the SLURM detection on node `index` of a step of `nodes` nodes.
ClusterEnvironment Step(int nodes, int index) {
  ClusterEnvironment s;
  s.starter = ClusterEnvironment::Starter::kSlurm;
  s.description = absl::StrCat("step 0 of SLURM job 12, node ", index + 1, " of ", nodes);
  s.nnodes = {nodes, absl::StrCat("SLURM_STEP_NUM_NODES=", nodes)};
  s.node_index = {index, absl::StrCat("SLURM_NODEID=", index)};
  s.endpoint = {Endpoint{"node1", 21234}, "first host of SLURM_STEP_NODELIST"};
  s.job_id = {"12", "SLURM_JOB_ID=12"};
  s.topology = {"s1", "SLURM_TOPOLOGY_ADDR=s1.node1"};
  for (int i = 1; i <= nodes; ++i) s.hosts.push_back(absl::StrCat("node", i));
  s.host = {s.hosts[index], absl::StrCat("SLURMD_NODENAME=", s.hosts[index])};
  s.batch = BatchSystem{.job = "12"};
  return s;
}

struct Outcome {
  absl::Status status;
  Options options;
  Origins origins;
  ClusterEnvironment cluster;
  LaunchConfig config;
};

// Parses, merges and resolves as main() does.
Outcome Launch(const absl::StatusOr<ClusterEnvironment>& found, Words flags, const Environment& environment = {}) {
  flags.push_back("train.py");
  absl::StatusOr<ParseResult> parsed = ParseOptions(flags, [&](const std::string& name) -> std::optional<std::string> {
    const auto variable = environment.find(name);
    if (variable == environment.end()) return std::nullopt;
    return variable->second;
  });
  Outcome outcome;
  outcome.status = parsed.status();
  if (!parsed.ok()) return outcome;
  outcome.options = std::get<ParsedOptions>(*parsed).options;
  outcome.origins = std::get<ParsedOptions>(*parsed).origins;
  const HostFacts facts{.cpus = 64, .random_id = "fresh"};
  absl::StatusOr<ClusterEnvironment> merged = MergeEnvironment(found, &outcome.options, &outcome.origins);
  outcome.status = merged.status();
  if (!merged.ok()) return outcome;
  outcome.cluster = *merged;
  absl::StatusOr<LaunchConfig> config = Resolve(outcome.options, facts, *merged);
  outcome.status = config.status();
  if (config.ok()) outcome.config = *config;
  return outcome;
}

Outcome MustLaunch(const absl::StatusOr<ClusterEnvironment>& found, const Words& flags,
                   const Environment& environment = {}) {
  const Outcome outcome = Launch(found, flags, environment);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  return outcome;
}

void ExpectError(const Outcome& outcome, const Words& words) {
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument) << outcome.status;
  EXPECT_FALSE(absl::StrContains(outcome.status.message(), '\n'));
  EXPECT_LE(outcome.status.message().size(), 400);
  for (const std::string& word : words) {
    EXPECT_TRUE(absl::StrContains(outcome.status.message(), word)) << word << " in " << outcome.status.message();
  }
}

void ExpectNote(const Outcome& outcome, const Words& words) {
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  ASSERT_EQ(outcome.config.notes.size(), 1);
  for (const std::string& word : words) {
    EXPECT_TRUE(absl::StrContains(outcome.config.notes[0], word)) << word << " in " << outcome.config.notes[0];
  }
}

TEST(MergeEnvironment, NoFlags_EverythingComesFromTheStep) {
  const Outcome o = MustLaunch(Step(3, 0), {});
  EXPECT_EQ(o.config.settings.min_nodes(), 3);
  EXPECT_EQ(o.config.settings.max_nodes(), 3);
  EXPECT_EQ(o.config.endpoint, (Endpoint{"node1", 21234}));
  EXPECT_EQ(o.config.server_place, ServerPlace::kHere);
  EXPECT_EQ(o.config.job_id, "12");
  EXPECT_EQ(o.config.cluster.host->value, "node1");
  EXPECT_EQ(o.config.cluster.topology->value, "s1");
  EXPECT_EQ(o.config.cluster.hosts, (Words{"node1", "node2", "node3"}));
  EXPECT_EQ(o.config.node_rank, std::nullopt) << "survivors keep their order";
  EXPECT_EQ(o.config.slots, 1);
  ASSERT_TRUE(o.config.cluster.batch.has_value());
  EXPECT_EQ(o.config.cluster.batch->job, "12");
  EXPECT_EQ(o.config.notes, Words{});
  EXPECT_EQ(o.origins.Of("nnodes"), "SLURM_STEP_NUM_NODES=3");
  EXPECT_EQ(o.origins.Of("rdzv-endpoint"), "first host of SLURM_STEP_NODELIST");
  EXPECT_EQ(o.origins.Of("rdzv-id"), "SLURM_JOB_ID=12");
  EXPECT_EQ(o.origins.Of("is_host"), "SLURM_NODEID=0");
  EXPECT_EQ(o.origins.Of("max-restarts"), "default");
}

TEST(MergeEnvironment, OtherNodes_OnlyConnect) {
  EXPECT_EQ(Launch(Step(3, 1), {}).config.server_place, ServerPlace::kElsewhere);
  EXPECT_EQ(Launch(Step(3, 1), {"--rdzv-conf=is_host=1"}).config.server_place, ServerPlace::kHere) << "a flag wins";
}

TEST(MergeEnvironment, OneNodeOrNoCluster_ServerIsInProcess) {
  const Outcome one = MustLaunch(Step(1, 0), {}), nothing = MustLaunch(ClusterEnvironment(), {});
  for (const Outcome& o : {one, nothing}) EXPECT_EQ(o.config.server_place, ServerPlace::kInProcess);
  EXPECT_EQ(one.config.job_id, "12");
  EXPECT_EQ(one.config.cluster.host->value, "node1");
  EXPECT_TRUE(one.config.cluster.batch.has_value());
  EXPECT_EQ(nothing.config.job_id, "fresh");
  EXPECT_EQ(nothing.config.notes, Words{});
  ExpectError(Launch(ClusterEnvironment(), {"--nnodes=2"}), {"--nnodes=2 needs --rdzv-endpoint"});
}

TEST(MergeEnvironment, FlagsAndVariables_TakePrecedenceOneByOne) {
  Outcome o = MustLaunch(Step(3, 1), {"--rdzv-id=mine"}, {{"PET_RDZV_ENDPOINT", "server:7"}});
  EXPECT_EQ(o.config.settings.max_nodes(), 3);
  EXPECT_EQ(o.config.job_id, "mine");
  EXPECT_EQ(o.config.endpoint, (Endpoint{"server", 7}));
  EXPECT_EQ(o.config.server_place, ServerPlace::kHereIfLocal);
  EXPECT_EQ(o.origins.Of("rdzv-endpoint"), "PET_RDZV_ENDPOINT=server:7 (none of the job's nodes)");
  EXPECT_EQ(o.config.notes, Words{});

  o = MustLaunch(Step(3, 1), {"--nnodes=2", "--nproc-per-node=4"});
  EXPECT_EQ(o.config.settings.max_nodes(), 2) << "one of the three is a spare";
  EXPECT_EQ(o.config.endpoint, (Endpoint{"node1", 21234}));
  EXPECT_EQ(o.config.slots, 4);
}

TEST(MergeEnvironment, MasterPortAlone_IsThePortOnTheFirstHost) {
  const Outcome o = MustLaunch(Step(2, 0), {"--master-port=1234"});
  EXPECT_EQ(o.config.endpoint, (Endpoint{"node1", 1234}));
  EXPECT_EQ(o.config.server_place, ServerPlace::kHere);
  EXPECT_EQ(o.config.notes, Words{});
}

TEST(MergeEnvironment, TorchrunTutorialFlags_AreAccepted) {
  for (int node = 0; node < 2; ++node) {
    const Outcome o = Launch(Step(2, node), {"--nnodes", "2", "--nproc_per_node", "2", "--rdzv_id", "12345",
                                             "--rdzv_backend", "c10d", "--rdzv_endpoint", "node1:29400"});
    ASSERT_TRUE(o.status.ok()) << o.status;
    EXPECT_EQ(o.config.endpoint, (Endpoint{"node1", 29400}));
    EXPECT_EQ(o.config.server_place, ServerPlace::kHereIfLocal);
    EXPECT_EQ(o.config.job_id, "12345");
    EXPECT_EQ(o.config.notes, Words{});
    EXPECT_EQ(o.origins.Of("rdzv-endpoint"), "--rdzv-endpoint=node1:29400");
  }
}

TEST(MergeEnvironment, MaximumAboveTheStep_IsReducedUnlessAnEndpointIsGiven) {
  Outcome o = Launch(Step(2, 0), {"--nnodes=1:4"});
  EXPECT_EQ(o.config.settings.min_nodes(), 1);
  EXPECT_EQ(o.config.settings.max_nodes(), 2);
  EXPECT_EQ(o.origins.Of("nnodes"), "--nnodes=1:4, cut to SLURM_STEP_NUM_NODES=2");
  EXPECT_EQ(Launch(Step(2, 0), {"--nnodes=1:2"}).origins.Of("nnodes"), "--nnodes=1:2");
  EXPECT_EQ(Launch(Step(2, 0), {"--nnodes=1:4", "--rdzv-endpoint=server"}).config.settings.max_nodes(), 4);
  o = MustLaunch(Step(1, 0), {"--nnodes=1:4"});
  EXPECT_EQ(o.config.server_place, ServerPlace::kInProcess);
}

TEST(MergeEnvironment, MoreNodesThanTheStepHas_IsAnErrorUnlessAnEndpointIsGiven) {
  ExpectError(Launch(Step(2, 0), {"--nnodes=3:4"}),
              {"--nnodes=3:4", "2 nodes (SLURM_STEP_NUM_NODES=2)", "--rdzv-endpoint"});
  ExpectError(Launch(Step(1, 0), {}, {{"PET_NNODES", "2"}}), {"PET_NNODES=2", "1 node (SLURM_STEP_NUM_NODES=1)"});
  ExpectNote(Launch(Step(2, 0), {"--nnodes=4", "--rdzv-endpoint=node1"}), {"--nnodes=4", "from elsewhere"});
}

TEST(MergeEnvironment, SeparateJob_InAStepOfSeveralNodes_IsNoted) {
  for (const Words& flags : {Words{"--standalone"}, Words{"--nnodes=1"}, Words{"--nnodes=1", "--rdzv-endpoint=h"}}) {
    const Outcome o = Launch(Step(2, 1), flags);
    ExpectNote(o, {flags[0], "each of the 2 nodes (SLURM_STEP_NUM_NODES=2) runs as a separate job"});
    EXPECT_EQ(o.config.settings.max_nodes(), 1);
    EXPECT_NE(o.config.job_id, "12");
    EXPECT_EQ(o.config.cluster.hosts, Words{});
    EXPECT_EQ(o.config.cluster.host->value, "node2");
  }
  EXPECT_EQ(Launch(Step(1, 0), {"--standalone"}).config.notes, Words{});
}

TEST(MergeEnvironment, LoopbackEndpoint_InAStepOfSeveralNodes_IsAnError) {
  for (const char* flag : {"--rdzv-endpoint=localhost:29400", "--rdzv-endpoint=localhost:0", "--master-addr=127.0.0.1",
                           "--rdzv-endpoint=[::1]:1"}) {
    ExpectError(Launch(Step(2, 0), {flag}), {"separate job", "2 nodes", "leave the flag out"});
    ExpectError(Launch(Step(2, 0), {"--nnodes=2", flag}), {"separate job"});
    EXPECT_TRUE(Launch(Step(1, 0), {flag}).status.ok()) << flag;
  }
  ExpectError(Launch(Step(2, 0), {}, {{"PET_RDZV_ENDPOINT", "localhost"}}), {"PET_RDZV_ENDPOINT=localhost"});
  ClusterEnvironment on_loopback = Step(2, 0);
  on_loopback.hosts = {"localhost", "127.0.0.2"};
  EXPECT_TRUE(Launch(on_loopback, {"--rdzv-endpoint=localhost"}).status.ok());
}

TEST(MergeEnvironment, GivenEndpoint_NotANode_IsOnlyRemarkedOn) {
  for (const char* host : {"node2", "node2.cluster", "10.0.0.1", "fd00::1"}) {
    const Outcome o = Launch(Step(2, 0), {absl::StrCat("--rdzv-endpoint=", host)});
    EXPECT_FALSE(absl::StrContains(o.origins.Of("rdzv-endpoint"), "none")) << host;
  }
  EXPECT_TRUE(absl::StrContains(Launch(Step(2, 0), {"--master-addr=node9"}).origins.Of("master-addr"), "none"));
}

TEST(MergeEnvironment, EndpointWhoseNameAppearsLate_IsHostedByNodeZero) {
  ClusterEnvironment pod = Step(2, 0);
  pod.endpoint_appears_late = true;
  EXPECT_EQ(Launch(pod, {"--master-addr=node1", "--nnodes=2"}).config.server_place, ServerPlace::kHere);
  EXPECT_TRUE(Launch(pod, {}).config.cluster.endpoint_appears_late);
  pod.node_index->value = 1;
  EXPECT_EQ(Launch(pod, {"--rdzv-endpoint=node1:7"}).config.server_place, ServerPlace::kElsewhere);
  EXPECT_EQ(Launch(pod, {"--rdzv-endpoint=server"}).config.server_place, ServerPlace::kHereIfLocal);
}

TEST(MergeEnvironment, Obstacle_IsAnErrorIfTheShapeIsNeeded) {
  ClusterEnvironment s = Step(2, 0);
  s.obstacle = "2 tasks on this node: write srun --ntasks-per-node=1";
  s.gpus = {8, "SLURM_GPUS_ON_NODE=8"};
  for (const Words& flags : {Words{}, Words{"--nnodes=2"}, Words{"--nnodes=1:2"}, Words{"--rdzv-endpoint=server"},
                             Words{"--nnodes=2", "--master-port=7"}}) {
    ExpectError(Launch(s, flags), {"2 tasks on this node"});
  }
  for (const Words& flags :
       {Words{"--standalone"}, Words{"--nnodes=1"}, Words{"--nnodes=2", "--rdzv-endpoint=server"},
        Words{"--nnodes=2", "--node-rank=0", "--master-addr=server"}, Words{"--nnodes=4", "--rdzv-endpoint=server"}}) {
    const Outcome o = Launch(s, flags);
    EXPECT_TRUE(o.status.ok()) << o.status;
    EXPECT_EQ(o.config.slots, 1) << "the GPUs are shared with the other tasks";
  }
}

TEST(MergeEnvironment, MalformedEnvironment_IsAnErrorIfTheShapeIsNeededElseANote) {
  const absl::Status malformed = absl::InvalidArgumentError("SLURM_STEP_NODELIST='node[1-': a bracket is missing");
  for (const Words& flags : {Words{}, Words{"--nnodes=2"}, Words{"--rdzv-endpoint=server"}}) {
    ExpectError(Launch(malformed, flags), {"a bracket is missing"});
  }
  for (const Words& flags : {Words{"--standalone"}, Words{"--nnodes=2", "--rdzv-endpoint=server"}}) {
    ExpectNote(Launch(malformed, flags), {"a bracket is missing"});
  }
}

TEST(MergeEnvironment, SeveralNodesWithoutEndpoint_AreAnError) {
  ClusterEnvironment s;
  s.starter = ClusterEnvironment::Starter::kMpi;
  s.nnodes = {2, "OMPI_COMM_WORLD_SIZE=2"};
  ExpectError(Launch(s, {}), {"2 nodes (OMPI_COMM_WORLD_SIZE=2)", "--rdzv-endpoint=HOST[:PORT]"});
  const Outcome o = MustLaunch(s, {"--rdzv-endpoint=h"});
  EXPECT_EQ(o.config.settings.max_nodes(), 2);
}

TEST(MergeEnvironment, NodesWithoutIndex_AreNotedAndGiveTheEndpoint) {
  ClusterEnvironment script;
  script.starter = ClusterEnvironment::Starter::kOther;
  script.remedy = "PBS gave this job 4 nodes, but ...";
  script.endpoint = {Endpoint{"node1", 21234}, "PBS_NODEFILE=/nodes"};
  script.job_id = {"12", "PBS_JOBID=12"};
  Outcome o = Launch(script, {});
  ExpectNote(o, {"PBS gave this job 4 nodes"});
  EXPECT_EQ(o.config.server_place, ServerPlace::kInProcess);
  EXPECT_NE(o.config.job_id, "12") << "another ddprun may start on another of the nodes";
  ExpectNote(Launch(script, {"--standalone"}), {"--standalone: PBS gave"});
  o = MustLaunch(script, {"--nnodes=4"});
  EXPECT_EQ(o.config.notes, Words{});
  EXPECT_EQ(o.config.endpoint, (Endpoint{"node1", 21234}));
  EXPECT_EQ(o.config.server_place, ServerPlace::kHereIfLocal);
  EXPECT_EQ(o.config.job_id, "12");
}

TEST(MergeEnvironment, NodesWithoutEndpoint_ErrorHasTheRemedy) {
  ClusterEnvironment flux = Step(2, 1);
  flux.endpoint.reset();
  flux.remedy = "give --rdzv-endpoint=$(flux hostlist --nth=0 local)";
  ExpectError(Launch(flux, {}), {"2 nodes", "no endpoint is known: give --rdzv-endpoint=$(flux hostlist"});
  EXPECT_EQ(MustLaunch(flux, {"--rdzv-endpoint=node1"}).config.notes, Words{});
}

TEST(MergeEnvironment, IndexAmongAnUnknownNumberOfNodes_NeedsNnodes) {
  ClusterEnvironment pod = Step(2, 1);
  pod.nnodes.reset();
  pod.hosts.clear();
  ExpectError(Launch(pod, {}), {"this is node 1 (SLURM_NODEID=1)", "--nnodes=N"});
  EXPECT_TRUE(Launch(pod, {"--standalone"}).status.ok());
  const Outcome o = MustLaunch(pod, {}, {{"PET_NNODES", "2"}});
  EXPECT_EQ(o.config.server_place, ServerPlace::kElsewhere);
  EXPECT_EQ(o.config.endpoint.host, "node1");
  pod.node_index = {0, "SLURM_NODEID=0"};
  ExpectNote(Launch(pod, {}), {"this is node 0", "separate job", "--nnodes=N"});
}

TEST(MergeEnvironment, NoProcessCount_IsOneForEachGpu) {
  ClusterEnvironment s = Step(2, 0);
  s.gpus = {4, "SLURM_GPUS_ON_NODE=4"};
  Outcome o = Launch(s, {});
  EXPECT_EQ(o.config.slots, 4);
  EXPECT_EQ(o.origins.Of("nproc-per-node"), "SLURM_GPUS_ON_NODE=4");
  EXPECT_EQ(Launch(s, {"--standalone"}).config.slots, 4);
  EXPECT_EQ(Launch(s, {"--nproc-per-node=2"}).config.slots, 2);
}

TEST(MergeEnvironment, MoreWorkersThanVisibleGpus_IsAnErrorWithTheReason) {
  ClusterEnvironment s = Step(1, 0);
  s.gpus = {1, "CUDA_VISIBLE_DEVICES=3"};
  s.gpu_binding = "SLURM lets this task see 1 of the node's 8 GPUs (CUDA_VISIBLE_DEVICES=3)";
  EXPECT_EQ(Launch(s, {}).config.slots, 1);
  ExpectError(Launch(s, {"--nproc-per-node=8"}),
              {"--nproc-per-node=8, but SLURM lets this task see 1 of the node's 8 GPUs (CUDA_VISIBLE_DEVICES=3)",
               "--gpus-per-node=8 --ntasks-per-node=1", "CUDA_VISIBLE_DEVICES= for workers without GPU"});
  EXPECT_TRUE(Launch(s, {"--nproc-per-node=1"}).status.ok());
  EXPECT_TRUE(Launch(s, {"--nproc-per-node=cpu"}).status.ok());
  EXPECT_TRUE(Launch(s, {"--nproc-per-node=auto"}).status.ok());
}

TEST(MergeEnvironment, FewerCpusThanWorkers_IsNotedUnderSlurm) {
  ExpectNote(Launch(Step(1, 0), {"--nproc-per-node=65"}), {"65 workers share 64 CPUs", "srun", "--cpus-per-task"});
  EXPECT_EQ(Launch(Step(1, 0), {"--nproc-per-node=64"}).config.notes, Words{});
  EXPECT_EQ(Launch(ClusterEnvironment(), {"--nproc-per-node=65"}).config.notes, Words{});
}

}  // namespace
}  // namespace ddprun::launcher
