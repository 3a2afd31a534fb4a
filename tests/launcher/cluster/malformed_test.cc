// Malformed variables are reported in one line with name and value; random bytes never crash the detection.
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/cluster/detect.h"
#include "launcher/cluster/slurm_text.h"

namespace ddprun::launcher {
namespace {

using Variables = std::map<std::string, std::string>;

// A file's name in `variables` stands for its contents.
absl::StatusOr<ClusterEnvironment> Detect(const Variables& variables, const std::string& full_name = "") {
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return DetectCluster(lookup, std::nullopt, full_name,
                       [&](const std::string& path) { return lookup(path).value_or(""); });
}

const Variables& TwoNodes() {
  static const Variables& variables = *new Variables{{"SLURMD_NODENAME", "node2"},
                                                     {"SLURM_JOB_ID", "35"},
                                                     {"SLURM_JOB_NODELIST", "node[1-2]"},
                                                     {"SLURM_NNODES", "2"},
                                                     {"SLURM_NODEID", "1"},
                                                     {"SLURM_STEP_ID", "0"},
                                                     {"SLURM_STEP_NODELIST", "node[1-2]"},
                                                     {"SLURM_STEP_NUM_NODES", "2"},
                                                     {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
  return variables;
}

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

struct Malformed {
  const char* name;
  const char* value;
  const char* expected;  // part of the message
};

// Each error names its variable and ends with `end`.
void ExpectErrors(const Variables& good, const std::vector<Malformed>& cases, const char* end = "") {
  ASSERT_TRUE(Detect(good).ok());
  for (const auto& c : cases) {
    const absl::Status status = Detect(With(good, c.name, c.value)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.name << "=" << c.value;
    EXPECT_TRUE(absl::StrContains(status.message(), c.expected)) << status;
    EXPECT_TRUE(absl::EndsWith(status.message(), end)) << status;
  }
}

TEST(DetectSlurm, MalformedVariable_IsNamedInOneLine) {
  const std::vector<Malformed> kCases = {
      {"SLURM_JOB_ID", "x", "SLURM_JOB_ID: 'x' is not a whole number from 1 to 4294967295"},
      {"SLURM_JOB_ID", "0", "SLURM_JOB_ID: '0' is not a whole number from 1 to 4294967295"},
      {"SLURM_JOB_ID", "35.0", "SLURM_JOB_ID: '35.0' is not"},
      {"SLURM_JOB_ID", "99999999999999999999", "SLURM_JOB_ID: '99999999999999999999' is not"},
      {"SLURM_STEP_ID", "batch", "SLURM_STEP_ID: 'batch' is not a whole number from 0 to 4294967295"},
      {"SLURM_STEP_NODELIST", "", "SLURM_STEP_ID=0: there is a step, but no SLURM_STEP_NODELIST"},
      {"SLURM_STEP_NODELIST", "node[1-", "SLURM_STEP_NODELIST=node[1-: not a host list: missing number at position 8"},
      {"SLURM_STEP_NODELIST", "node[1-3]", "SLURM_STEP_NUM_NODES=2: but SLURM_STEP_NODELIST has 3 nodes"},
      {"SLURM_STEP_NODELIST", "node[1-999999]", "the host list has more than 100000 hosts"},
      {"SLURM_STEP_NODELIST", "n@1,node2", "SLURM_STEP_NODELIST=n@1,node2: 'n@1' is not"},
      {"SLURM_STEP_NUM_NODES", "two", "SLURM_STEP_NUM_NODES: 'two' is not a whole number from 1 to 100000"},
      {"SLURM_STEP_NUM_NODES", "0", "SLURM_STEP_NUM_NODES: '0' is not"},
      {"SLURM_STEP_NUM_NODES", "3", "SLURM_STEP_NUM_NODES=3: but SLURM_STEP_NODELIST has 2 nodes"},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x2", "SLURM_STEP_TASKS_PER_NODE: '1(x2' is not a list of counts"},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x3)",
       "SLURM_STEP_TASKS_PER_NODE=1(x3): it is for 3 nodes, but SLURM_STEP_NODELIST has 2 nodes"},
      {"SLURM_NODEID", "-1", "SLURM_NODEID: '-1' is not a whole number from 0 to 100000"},
      {"SLURM_NODEID", "2", "SLURM_NODEID=2: but there are only 2 nodes"},
      {"SLURM_NNODES", "2.0", "SLURM_NNODES: '2.0' is not"},
      {"SLURMD_NODENAME", "node 2", "SLURMD_NODENAME=node 2: 'node 2' is not"},
      {"SLURM_RESTART_COUNT", "often", "SLURM_RESTART_COUNT: 'often' is not"},
      {"SLURM_JOB_END_TIME", "tomorrow", "SLURM_JOB_END_TIME: 'tomorrow' is not"},
      {"SLURM_GPUS_ON_NODE", "gpu:8", "SLURM_GPUS_ON_NODE: 'gpu:8' is not a whole number from 0 to 4096"},
      {"SLURM_GPUS_ON_NODE", "5000", "SLURM_GPUS_ON_NODE: '5000' is not"},
      {"SLURM_NODE_ALIASES", "node1:", "SLURM_NODE_ALIASES=node1:: '' is not"},
      {"SLURM_NODE_ALIASES", "node1:[::1:x", "SLURM_NODE_ALIASES=node1:[::1:x: "},
      {"SLURM_NODE_ALIASES", "node1:a b:c", "SLURM_NODE_ALIASES=node1:a b:c: 'a b' is not"},
      {"SLURM_ARRAY_JOB_ID", "a", "SLURM_ARRAY_JOB_ID: 'a' is not"},
      {"SLURM_ARRAY_TASK_ID", "a", "SLURM_ARRAY_TASK_ID: 'a' is not"},
  };
  ExpectErrors(TwoNodes(), kCases, " (SLURM sets this; unset SLURM_JOB_ID to ignore SLURM)");
}

TEST(DetectSlurm, NoNodes_IsAnError) {
  EXPECT_TRUE(absl::StrContains(Detect({{"SLURM_JOB_ID", "1"}}).status().message(), "SLURM_JOB_NODELIST"));
}

TEST(DetectSlurm, TopologyOfOnePart_IsAnErrorOnlyIfItShouldHaveMore) {
  const Variables node = With(TwoNodes(), "SLURM_TOPOLOGY_ADDR", "node2");
  EXPECT_TRUE(Detect(With(node, "SLURM_TOPOLOGY_ADDR_PATTERN", "node")).ok());
  EXPECT_EQ(Detect(With(node, "SLURM_TOPOLOGY_ADDR_PATTERN", "switch.node")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DetectMpi, MalformedVariable_IsNamedInOneLine) {
  const Variables good = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}};
  const std::vector<Malformed> kCases = {
      {"PMI_RANK", "2", "PMI_RANK: '2' is not a whole number from 0 to 1"},
      {"PMI_RANK", "x", "PMI_RANK: 'x' is not"},
      {"PMI_SIZE", "0", "PMI_SIZE: '0' is not"},
      {"PMI_SIZE", "200000", "PMI_SIZE: '200000' is not a whole number from 1 to 100000"},
      {"MPI_LOCALNRANKS", "0", "MPI_LOCALNRANKS: '0' is not a whole number from 1"},
      {"MASTER_PORT", "http", "MASTER_PORT: 'http' is not"},
      {"MASTER_ADDR", "a:b", "MASTER_ADDR=a:b: "},
      {"AZ_BATCH_MASTER_NODE", "a:b", "AZ_BATCH_MASTER_NODE=a:b: "},
  };
  ExpectErrors(good, kCases, " (MPI sets this; unset PMI_RANK to ignore it)");
}

TEST(DetectKubernetes, MalformedVariable_IsNamedInOneLine) {
  EXPECT_EQ(Detect({{"JOB_COMPLETION_INDEX", "first"}}).status().message(),
            "JOB_COMPLETION_INDEX: 'first' is not a whole number from 0 to 99999");
  EXPECT_TRUE(absl::StartsWith(Detect({{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", "a b"}}).status().message(),
                               "HOSTNAME=a b: 'a b' is not"));
  EXPECT_TRUE(Detect({{"JOB_COMPLETION_INDEX", "1"}}).ok());
}

TEST(DetectPlatform, MalformedVariable_IsNamedInOneLine) {
  const Variables sky = {{"SKYPILOT_NODE_RANK", "1"},
                         {"SKYPILOT_NUM_NODES", "2"},
                         {"SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2"},
                         {"SKYPILOT_NUM_GPUS_PER_NODE", "8"},
                         {"SKYPILOT_TASK_ID", "sky-1"}};
  const std::string long_id(300, 'x');
  const std::vector<Malformed> kCases = {
      {"SKYPILOT_NODE_RANK", "2", "SKYPILOT_NODE_RANK: '2' is not a whole number from 0 to 1"},
      {"SKYPILOT_NODE_RANK", "first", "SKYPILOT_NODE_RANK: 'first' is not"},
      {"SKYPILOT_NUM_NODES", "3", "SKYPILOT_NUM_NODES=3: but SKYPILOT_NODE_IPS has 2 nodes"},
      {"SKYPILOT_NUM_NODES", "0", "SKYPILOT_NUM_NODES: '0' is not"},
      {"SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n10.0.0.3", "SKYPILOT_NUM_NODES=2: but SKYPILOT_NODE_IPS has 3 nodes"},
      {"SKYPILOT_NODE_IPS", "10.0.0.1:22 x", "'10.0.0.1:22' is not"},
      {"SKYPILOT_NODE_IPS", " ,\n", "it names no host"},
      {"SKYPILOT_NUM_GPUS_PER_NODE", "H100:8", "SKYPILOT_NUM_GPUS_PER_NODE: 'H100:8' is not"},
      {"SKYPILOT_TASK_ID", long_id.c_str(), "it is too long"},
  };
  ExpectErrors(sky, kCases, " (SkyPilot sets this; unset SKYPILOT_NODE_RANK to ignore it)");
  const Variables sagemaker = {{"SM_HOSTS", R"(["algo-1","algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}};
  ExpectErrors(sagemaker, {{"SM_CURRENT_HOST", "algo-3", "SM_CURRENT_HOST=algo-3: it is not in SM_HOSTS"},
                           {"SM_HOSTS", "[]", "SM_HOSTS=[]: it names no host"},
                           {"SM_HOSTS", R"({"a": 1})", "'{' is not"}});
}

TEST(DetectPlatform, MalformedJson_IsNamedInOneLine) {
  const Variables vertex = {
      {"CLOUD_ML_JOB_ID", "1"},
      {"CLUSTER_SPEC", R"({"cluster":{"workerpool0":["a:2222"]},"task":{"type":"workerpool0","index":0}})"}};
  const char* const kNoSpec = "it is not a JSON object with the hosts of worker pools and a task";
  std::vector<Malformed> cases;
  for (const char* spec : {"x", "[]", "3", R"({"cluster":[],"task":{}})", R"({"cluster":{"workerpool0":["a:1"]}})",
                           R"({"cluster":{"workerpool0":["a:1"]},"task":{"type":"workerpool0","index":1}})",
                           R"({"cluster":{"workerpool0":["a:1"]},"task":{"type":"workerpool0","index":-1}})",
                           R"({"cluster":{"workerpool0":["a:1"]},"task":{"type":7,"index":0}})",
                           R"({"cluster":{"workerpool0":"a:1"},"task":{"type":"workerpool0","index":0}})",
                           R"({"cluster":{"workerpool0":[1]},"task":{"type":"workerpool0","index":0}})"}) {
    cases.push_back({"CLUSTER_SPEC", spec, kNoSpec});
  }
  cases.push_back({"CLUSTER_SPEC", R"({"cluster":{"workerpool0":["a"]},"task":{"type":"workerpool0","index":0}})",
                   "CLUSTER_SPEC={"});
  ExpectErrors(vertex, cases);
  EXPECT_TRUE(Detect({{"CLUSTER_SPEC", "of another program"}}).ok());

  constexpr char kFile[] = "/opt/ml/input/config/resourceconfig.json";
  const Variables sagemaker = {{"TRAINING_JOB_NAME", "job"}, {kFile, R"({"current_host":"a","hosts":["a","b"]})"}};
  ExpectErrors(sagemaker, {{kFile, "{", "resourceconfig.json is not a JSON object with hosts and current_host"},
                           {kFile, R"({"current_host":1,"hosts":[]})", "is not a JSON object with"},
                           {kFile, R"({"current_host":"a","hosts":[]})", "it names no host"},
                           {kFile, R"({"current_host":"a","hosts":[{"b":1}]})", "'{' is not"}});
  EXPECT_TRUE(Detect({{"TRAINING_JOB_NAME", "job"}}).ok()) << "not in a container of SageMaker";
}

TEST(DetectBatchSystem, MalformedVariable_IsNamedInOneLine) {
  const Variables pbs = {{"PBS_JOBID", "7.pbs"},
                         {"PBS_NODEFILE", "/nodes"},
                         {"/nodes", "node1\nnode2\n"},
                         {"PBS_NODENUM", "1"},
                         {"PBS_TASKNUM", "00000002"}};
  ExpectErrors(pbs,
               {{"PBS_NODENUM", "x", "PBS_NODENUM: 'x' is not"},
                {"/nodes", "node1\nno@de\n", "'no@de' is not"},
                {"PBS_NUM_NODES", "many", "PBS_NUM_NODES: 'many' is not"}},
               " (PBS sets this; unset PBS_JOBID to ignore it)");
  EXPECT_TRUE(Detect(With(pbs, "/nodes", "")).ok()) << "a file that can't be read";
  const Variables lsf = {{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 1 b 1"}, {"LSF_PM_TASKID", "2"}};
  ExpectErrors(lsf, {{"LSF_PM_TASKID", "0", "LSF_PM_TASKID: '0' is not a whole number from 1"},
                     {"LSB_MCPU_HOSTS", "a 8 b@ 8", "'b@' is not"}});
}

TEST(DetectCluster, RandomBytes_ResultOrErrorOfOneLine) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  constexpr absl::string_view kLikely = "0123456789[]-,()x:.node =\n\\\"#\t\xff";
  const auto number = [&](int max) { return std::uniform_int_distribution<int>(0, max)(random); };
  const auto bytes = [&] {
    std::string text;
    for (int length = number(30); length > 0; --length) {
      text.push_back(number(9) == 0 ? static_cast<char>(number(255)) : kLikely[number(kLikely.size() - 1)]);
    }
    return text;
  };
  // A valid value with a few changed bytes gets further into the parsers than random bytes.
  const auto spoilt = [&](std::string text) {
    for (int changes = number(2); changes > 0 && !text.empty(); --changes) {
      text[number(text.size() - 1)] = kLikely[number(kLikely.size() - 1)];
    }
    return text;
  };
  Variables all = TwoNodes();
  for (const char* name : {"SLURM_NODE_ALIASES",
                           "SLURM_TOPOLOGY_ADDR",
                           "SLURM_TOPOLOGY_ADDR_PATTERN",
                           "SLURM_HET_SIZE",
                           "SLURM_GPUS_ON_NODE",
                           "SLURM_STEP_GPUS",
                           "CUDA_VISIBLE_DEVICES",
                           "ROCR_VISIBLE_DEVICES",
                           "ZE_AFFINITY_MASK",
                           "SLURM_CPUS_ON_NODE",
                           "JOB_COMPLETION_INDEX",
                           "HOSTNAME",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "MPI_LOCALNRANKS",
                           "MASTER_ADDR",
                           "SKYPILOT_NODE_RANK",
                           "SKYPILOT_NUM_NODES",
                           "SKYPILOT_NODE_IPS",
                           "SKYPILOT_TASK_ID",
                           "SM_HOSTS",
                           "SM_CURRENT_HOST",
                           "CLUSTER_SPEC",
                           "CLOUD_ML_JOB_ID",
                           "FLUX_TASK_RANK",
                           "FLUX_JOB_NNODES",
                           "FLUX_JOB_ID",
                           "FLUX_JOB_SIZE",
                           "PBS_JOBID",
                           "PBS_NODEFILE",
                           "PBS_NODENUM",
                           "PBS_TASKNUM",
                           "LSB_JOBID",
                           "LSB_MCPU_HOSTS",
                           "LSF_PM_TASKID",
                           "JOB_ID",
                           "PE_HOSTFILE",
                           "NHOSTS"}) {
    all[name] = "node1:2:3";
  }
  int answers = 0;
  for (int round = 0; round < 20'000; ++round) {
    Variables variables = number(3) == 0 ? Variables() : TwoNodes();
    for (const auto& [name, value] : all) {
      if (number(5) == 0) variables[name] = number(1) == 0 ? bytes() : spoilt(value);
    }
    const auto found = Detect(variables, bytes());
    if (found.ok()) {
      ++answers;
    } else {
      ASSERT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_FALSE(absl::StrContains(found.status().message(), '\n')) << found.status();
    }
    ParseSlurmConf(absl::StrCat(bytes(), "KillWait=", bytes()));
  }
  EXPECT_GT(answers, 100);
}

}  // namespace
}  // namespace ddprun::launcher
