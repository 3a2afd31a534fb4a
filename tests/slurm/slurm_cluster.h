#ifndef DDPRUN_TESTS_SLURM_SLURM_CLUSTER_H_
#define DDPRUN_TESTS_SLURM_SLURM_CLUSTER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace ddprun::testing {

struct ClusterShape {
  std::vector<int> cpus = {4, 4};                     // of node1, node2 ...; how many nodes there are
  std::vector<int> gpus = {};                         // of node1, node2 ...; not real ones. Empty: none
  absl::Duration kill_wait = absl::Seconds(5);        // KillWait, from SIGTERM to SIGKILL
  absl::Duration slurmd_timeout = absl::Seconds(10);  // SlurmdTimeout, after which a silent node is down
  std::string topology = {};                          // lines of topology.conf; empty: no topology
};

// How a command ended.
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

  // A field of `scontrol show job`, as Field("JobState") "RUNNING" or Field("ExitCode") "7:0"; empty if there is none.
  std::string Field(const std::string& name) const;

  // Waits until the job has ended and returns its state, as "COMPLETED"; the state as it is if that takes too long.
  std::string WaitForEnd() const;
  // Waits until `text` stands in the output so many times; false if the job ended, or too much time passed, without it.
  bool WaitForOutput(const std::string& text, int times = 1) const;

 private:
  std::string id_;
};

// Tests on a real SLURM on this machine: slurmctld on the host "head", where the test itself runs, and slurmds on
// "node1", "node2" ..., each with a network, an address and a host name of its own (Hosts). They share the file system.
// There is one cluster for a test program, in its own namespaces: several programs never meet, and nothing is left of
// it when the program ends or is killed. A test that ends leaves no job behind and all nodes up. Not thread-safe.
class SlurmTest : public ::testing::Test {
 protected:
  // To be called from SetUpTestSuite(), once in a program.
  static void BringUp(const ClusterShape& shape);

  // Skips the test where there can be no cluster, and says why.
  void SetUp() override;
  void TearDown() override;

  // A command on the head, found by PATH, which has ddprun and trainer, in Folder().
  static Ended Run(const std::string& command);
  // sbatch with these flags and a script of which `body` is all but the first line. The job works in Folder().
  static Job Submit(const std::string& flags, const std::string& body);
  // sbatch with a script that is there already.
  static Job SubmitFile(const std::string& flags, const std::string& path);

  // The node loses its power: nobody hears of it again, and all its processes are gone.
  static void PowerOff(int node);

  // Where jobs can put files; gone with the cluster.
  static std::string Folder();
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SLURM_SLURM_CLUSTER_H_
