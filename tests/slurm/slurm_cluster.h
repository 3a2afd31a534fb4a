#ifndef DDPRUN_TESTS_SLURM_SLURM_CLUSTER_H_
#define DDPRUN_TESTS_SLURM_SLURM_CLUSTER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ddprun::testing {

struct ClusterShape {
  std::vector<int> cpus = {4, 4};                     // CPUs of node1, node2 ...; the size is the number of nodes
  std::vector<int> gpus = {};                         // simulated ones of node1, node2 ...; empty: none
  absl::Duration kill_wait = absl::Seconds(5);        // KillWait, from SIGTERM to SIGKILL
  absl::Duration slurmd_timeout = absl::Seconds(10);  // SlurmdTimeout, after which a silent node is down
  std::string topology = {};                          // lines of topology.conf; empty: no topology
};

// Result of a command.
struct Ended {
  int code = -1;  // exit code, or 128 + signal; -1 if it did not end
  std::string out;
  std::string err;
};

// A batch job. Its output (standard output and error together) goes to a file.
class Job {
 public:
  explicit Job(std::string id) : id_(std::move(id)) {}

  const std::string& id() const { return id_; }
  std::string Output() const;

  // A field of `scontrol show job`, such as Field("JobState") "RUNNING" or Field("ExitCode") "7:0"; empty if absent.
  std::string Field(const std::string& name) const;

  // Waits until the job has ended and returns its state, such as "COMPLETED"; on a timeout, the current state.
  std::string WaitForEnd() const;
  // Waits until the output contains `text` this many times; false if the job ends, or a timeout passes, before that.
  bool WaitForOutput(const std::string& text, int times = 1) const;

 private:
  std::string id_;
};

// Tests on a real SLURM on this machine: slurmctld on the host "head", where the test itself runs, and slurmds on
// "node1", "node2" ..., each with a network, an address and a host name of its own (Hosts). They share the file system.
// There is one cluster per test program, in its own namespaces: programs do not interfere, and nothing is left when the
// program ends or is killed. After each test no job is left and all nodes are up. Not thread-safe.
class SlurmTest : public ::testing::Test {
 protected:
  // REQUIRES: called from SetUpTestSuite(), once per program.
  static void BringUp(const ClusterShape& shape);

  // Skips the test, with the reason, where clusters are unsupported.
  void SetUp() override;
  void TearDown() override;

  // Runs a command on the head in Folder(). PATH includes ddprun and trainer.
  static Ended Run(const std::string& command);
  // Run and Submit for commands and jobs that must succeed; return their output.
  static std::string RunWell(const std::string& command) {
    const Ended ended = Run(command);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }
  static std::string Completed(const std::string& flags, const std::string& body) {
    const Job job = Submit(flags, body);
    EXPECT_EQ(job.WaitForEnd(), "COMPLETED") << job.Output();
    return job.Output();
  }
  // Submits a script that consists of a first line and `body`. The job runs in Folder().
  static Job Submit(const std::string& flags, const std::string& body);
  // Submits a job that trains (`srun ddprun ... trainer`) in a separate folder with these variables in its environment.
  // The batch script writes srun's exit code.
  static Job Train(const std::string& sbatch_flags, const std::string& ddprun_flags, const std::string& variables = "",
                   const std::string& srun_flags = "");
  // A job of two workers that have begun to train; the other parameters are those of Train.
  static Job Training(const std::string& sbatch_flags, const std::string& ddprun_flags,
                      const std::string& variables = "", const std::string& srun_flags = "") {
    const Job job = Train(sbatch_flags, ddprun_flags, variables, srun_flags);
    EXPECT_TRUE(job.WaitForOutput("begins at step 0", 2)) << job.Output();
    return job;
  }
  // Submits an existing script.
  static Job SubmitFile(const std::string& flags, const std::string& path);

  // Simulates a power loss: the node is unreachable and all its processes are killed.
  static void PowerOff(int node);

  // Folder for the jobs' files; removed with the cluster.
  static std::string Folder();
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SLURM_SLURM_CLUSTER_H_
