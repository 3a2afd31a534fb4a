#include "tests/slurm/slurm_cluster.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/steady_time.h"
#include "tests/e2e/launch.h"
#include "tests/hosts/hosts.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

// /run is private (see Hosts). munged requires a folder whose parents are all owned by root.
constexpr char kRoot[] = "/run/slurm";
constexpr char kWork[] = "/run/slurm/work";
// libmunge's default.
constexpr char kMungeSocket[] = "/run/munge/munge.socket.2";
constexpr char kHeadAddress[] = "10.77.0.254";

std::string At(const std::string& path) { return absl::StrCat(kRoot, "/", path); }

Ended RunArgv(std::vector<std::string> argv) {
  argv.insert(argv.begin(), "/usr/bin/env");
  Process process(std::move(argv));
  Ended ended;
  ended.code = process.Wait();
  ended.out = process.Out();
  ended.err = process.Err();
  return ended;
}

Ended RunShell(const std::string& script) { return RunArgv({"bash", "-c", script}); }

// Waits for an action of SLURM. Each check costs a process, so it polls less often than Eventually().
template <typename Condition>
bool WaitFor(Condition condition) {
  const SteadyTime deadline = SteadyNow() + Process::kPatience;
  while (!condition()) {
    if (SteadyNow() >= deadline) return false;
    poll(nullptr, 0, 50);
  }
  return true;
}

std::string Configuration(const ClusterShape& shape) {
  std::string text = absl::StrCat(R"(
ClusterName=ddprun
SlurmctldHost=head()",
                                  kHeadAddress, R"()
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job starts again when its credential has expired, by default after two minutes.
AuthInfo=socket=/run/munge/munge.socket.2,cred_expire=5
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
# Nodes may have more CPUs than this machine.
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
PropagateResourceLimits=NONE
ReturnToService=2
MessageTimeout=10
TCPTimeout=2
CompleteWait=0
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES OverSubscribe=NO PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
)",
                                  "KillWait=", absl::ToInt64Seconds(shape.kill_wait),
                                  "\nSlurmdTimeout=", absl::ToInt64Seconds(shape.slurmd_timeout), "\n",
                                  shape.topology.empty() ? "" : "TopologyPlugin=topology/tree\n");
  for (size_t i = 0; i < shape.cpus.size(); ++i) {
    const int node = static_cast<int>(i) + 1;
    absl::StrAppend(&text, "NodeName=", Hosts::Name(node), " NodeAddr=", Hosts::Ipv4(node), " CPUs=", shape.cpus[i],
                    " RealMemory=1000");
    if (!shape.gpus.empty()) absl::StrAppend(&text, " Gres=gpu:", shape.gpus[i]);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// SLURM counts plain files as GPUs but lists only devices in CUDA_VISIBLE_DEVICES.
std::string MakeGpus(const ClusterShape& shape) {
  std::string text;
  for (size_t i = 0; i < shape.gpus.size(); ++i) {
    const std::string node = Hosts::Name(static_cast<int>(i) + 1);
    for (int gpu = 0; gpu < shape.gpus[i]; ++gpu) {
      const std::string device = At(absl::StrCat(node, "gpu", gpu));
      mknod(device.c_str(), S_IFCHR | 0666, makedev(1, 3));
      absl::StrAppend(&text, "NodeName=", node, " Name=gpu File=", device, "\n");
    }
  }
  return text;
}

class Cluster {
 public:
  explicit Cluster(const ClusterShape& shape) : hosts_(static_cast<int>(shape.cpus.size())), shape_(shape) {
    problem_ = WriteConfiguration();
    if (problem_.empty()) problem_ = StartDaemons();
  }

  const std::string& problem() const { return problem_; }

  void PowerOff(int node) {
    hosts_.Cut(node);
    off_[node] = true;
    // Repeated for jobs that were starting meanwhile.
    RunShell(absl::StrCat("while pids=$(ip netns pids ", Hosts::Name(node),
                          ") && [ -n \"$pids\" ]; do kill -9 $pids; sleep 0.01; done 2>/dev/null"));
  }

  // No job is left, and all nodes are up and idle.
  bool Restore() {
    RunShell("scancel --user=root");
    for (const auto& [node, off] : off_) {
      hosts_.Heal(node);
      StartNode(node);
    }
    off_.clear();
    // A node set to down stays down until it is resumed.
    const bool idle = WaitFor([] {
      RunShell("scontrol update state=resume nodename=$(sinfo -h -o %N -t down,drain,fail)");
      return RunShell("squeue -h; sinfo -h -o %T | sort -u").out == "idle\n";
    });
    return idle;
  }

 private:
  std::string WriteConfiguration() {
    namespace fs = std::filesystem;
    for (const char* folder : {"", "state", "spool", "munge", "work", "work/bin"}) {
      fs::create_directories(At(folder));
      fs::permissions(At(folder), fs::perms(0755));
    }
    fs::create_directories(fs::path(kMungeSocket).parent_path());
    std::ofstream(At("slurm.conf")) << Configuration(shape_);
    std::ofstream(At("gres.conf")) << MakeGpus(shape_);
    if (!shape_.topology.empty()) std::ofstream(At("topology.conf")) << shape_.topology << "\n";
    for (const char* program : {"launcher/ddprun", "tests/testbin/trainer"}) {
      fs::create_symlink(fs::absolute(program), absl::StrCat(kWork, "/bin/", fs::path(program).filename().string()));
    }
    setenv("SLURM_CONF", At("slurm.conf").c_str(), 1);
    // The head is this program's own namespace, with a link to the nodes' bridge and a host name.
    std::string names = absl::StrCat("127.0.0.1 localhost\n", kHeadAddress, " head\n");
    for (size_t i = 1; i <= shape_.cpus.size(); ++i) {
      absl::StrAppend(&names, Hosts::Ipv4(static_cast<int>(i)), " ", Hosts::Name(static_cast<int>(i)), "\n");
    }
    std::ofstream(At("hosts")) << names;
    const Ended ended = RunShell(absl::StrCat(R"(set -e
hostname head
mount --bind /run/slurm/hosts /etc/hosts
ip link set lo up
ip -n switch link add head type veth peer name eth0 netns $$
ip -n switch link set head master br0 up
ip addr add )",
                                              kHeadAddress, R"(/24 dev eth0
ip link set eth0 up
head -c 128 /dev/urandom >/run/slurm/munge/key
chmod 600 /run/slurm/munge/key)"));
    for (int node = 1; node <= static_cast<int>(shape_.cpus.size()); ++node) {
      hosts_.SetHostsFile(node, names.substr(names.find('\n') + 1));
    }
    return ended.code == 0 ? "" : absl::StrCat("the head was not set up: ", ended.err);
  }

  std::string StartDaemons() {
    const std::string munge = At("munge/");
    daemons_.push_back(std::make_unique<Process>(
        std::vector<std::string>{"/usr/bin/env", "munged", "--foreground", absl::StrCat("--key-file=", munge, "key"),
                                 absl::StrCat("--socket=", kMungeSocket), absl::StrCat("--pid-file=", munge, "pid"),
                                 absl::StrCat("--seed-file=", munge, "seed"), "--origin=127.0.0.1"}));
    if (!WaitFor([&] { return std::filesystem::exists(kMungeSocket); })) {
      return absl::StrCat("munged did not come up: ", daemons_.back()->Err());
    }
    daemons_.push_back(std::make_unique<Process>(std::vector<std::string>{"/usr/bin/env", "slurmctld", "-D", "-c"}));
    for (size_t i = 1; i <= shape_.cpus.size(); ++i) StartNode(static_cast<int>(i));
    if (WaitFor([] { return RunShell("sinfo -h -o %T | sort -u").out == "idle\n"; })) return "";
    std::string said;
    for (const std::unique_ptr<Process>& daemon : daemons_) absl::StrAppend(&said, daemon->Err());
    return absl::StrCat("the nodes did not become idle: ", said);
  }

  void StartNode(int node) {
    std::filesystem::create_directories(At(absl::StrCat("spool/", Hosts::Name(node))));
    daemons_.push_back(std::make_unique<Process>(hosts_.On(node, {"slurmd", "-D", "-N", Hosts::Name(node)})));
  }

  Hosts hosts_;
  const ClusterShape shape_;
  std::string problem_;
  std::vector<std::unique_ptr<Process>> daemons_;
  std::map<int, bool> off_;
};

// Never deleted: the cluster ends with the program's namespaces.
Cluster* cluster = nullptr;

// Reason why a cluster is unsupported here; empty if it is supported.
std::string Unavailable() {
  if (std::string why = Hosts::Unavailable(); !why.empty()) return why;
  for (const char* program : {"munged", "slurmctld", "slurmd", "srun"}) {
    if (RunShell(absl::StrCat("command -v ", program)).code != 0) {
      return absl::StrCat("there is no ", program, ": apt-get install slurm-wlm munge");
    }
  }
  // slurmd needs the real root: in a user namespace it may not set a job's groups.
  if (RunShell("setpriv --groups=1 true").code != 0) return "slurmd needs root";
  return "";
}

bool HasEnded(const std::string& state) {
  // SIGNALING replaces RUNNING while SLURM sends the job a signal.
  for (const char* going : {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "PREEMPTED", "SIGNALING"}) {
    if (state == going) return false;
  }
  return !state.empty();
}

}  // namespace

std::string Job::Output() const { return ReadFile(absl::StrCat(kWork, "/", id_, ".out")); }

std::string Job::Field(const std::string& name) const {
  const std::string record = RunArgv({"scontrol", "show", "job", "-o", id_}).out;
  for (absl::string_view field : absl::StrSplit(record, absl::ByAnyChar(" \n"))) {
    if (absl::ConsumePrefix(&field, absl::StrCat(name, "="))) return std::string(field);
  }
  return "";
}

std::string Job::WaitForEnd() const {
  std::string state;
  WaitFor([&] { return HasEnded(state = Field("JobState")); });
  return state;
}

bool Job::WaitForOutput(const std::string& text, int times) const {
  bool found = false;
  WaitFor([&] {
    const bool ended = HasEnded(Field("JobState"));
    found = Count(Output(), text) >= times;
    return found || ended;
  });
  return found;
}

void SlurmTest::BringUp(const ClusterShape& shape) {
  // The daemons are in sbin, which is not in a test's PATH.
  setenv("PATH", absl::StrCat(kWork, "/bin:/usr/sbin:/usr/bin:/sbin:/bin").c_str(), 1);
  if (cluster == nullptr && Unavailable().empty()) cluster = new Cluster(shape);
}

void SlurmTest::SetUp() {
  if (cluster == nullptr) GTEST_SKIP() << Unavailable();
  ASSERT_EQ(cluster->problem(), "");
}

void SlurmTest::TearDown() {
  if (cluster == nullptr || !cluster->problem().empty()) return;
  EXPECT_TRUE(cluster->Restore()) << Run("squeue; sinfo -N").out;
}

Ended SlurmTest::Run(const std::string& command) { return RunShell(absl::StrCat("cd ", kWork, "; ", command)); }

Job SlurmTest::Submit(const std::string& flags, const std::string& body) {
  static int scripts = 0;
  const std::string path = absl::StrCat(kWork, "/script", ++scripts, ".sh");
  std::ofstream(path) << "#!/bin/bash\n" << body << "\n";
  return SubmitFile(flags, path);
}

Job SlurmTest::Train(const std::string& sbatch_flags, const std::string& ddprun_flags, const std::string& variables,
                     const std::string& srun_flags) {
  static int jobs = 0;
  const std::string folder = absl::StrCat(Folder(), "/train", ++jobs);
  Run(absl::StrCat("mkdir ", folder));
  return Submit(absl::StrCat("--open-mode=append --chdir=", folder, " ", sbatch_flags),
                absl::StrCat("export ", variables, " NONE=; srun ", srun_flags, " ddprun ", ddprun_flags,
                             " --no-python trainer ${STEPS-}; code=$?; echo srun ended with $code; exit $code"));
}

Job SlurmTest::SubmitFile(const std::string& flags, const std::string& path) {
  const Ended ended = Run(absl::StrCat("sbatch --parsable --output=", kWork, "/%j.out ", flags, " ", path));
  EXPECT_EQ(ended.code, 0) << ended.err;
  return Job(std::string(absl::StripAsciiWhitespace(ended.out)));
}

void SlurmTest::PowerOff(int node) { cluster->PowerOff(node); }

std::string SlurmTest::Folder() { return kWork; }

}  // namespace ddprun::testing
