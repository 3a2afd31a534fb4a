#include "launcher/cluster/slurm_conf.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

std::optional<std::string> Nothing(const std::string&) { return std::nullopt; }

TEST(ParseSlurmConf, KillWait_IsReadInEveryForm) {
  for (const char* text :
       {"KillWait=7", "killwait=7\n", "KILLWAIT=7", "  KillWait = 7  ", "KillWait=\"7\"", "KillWait=7 # seconds",
        "ClusterName=x KillWait=7 Waittime=0", "KillWait=5\nKillWait=7", "ClusterName=x \\\n KillWait=7",
        "ClusterName=x \\\r\n KillWait=7\r\n", "Epilog=\"/a b\" KillWait=7",
        "NodeName=n[1-2] CPUs=4\n#KillWait=9\nKillWait=7", "Include other.conf\nKillWait=7", "A=\\# KillWait=7",
        "KillWait=x\nKillWait=7\nKillWait=-1\nKillWait=70000"}) {
    EXPECT_EQ(ParseSlurmConf(text).kill_wait, absl::Seconds(7)) << text;
  }
}

TEST(ParseSlurmConf, WithoutIt_ItIsSlurmsDefault) {
  for (const char* text : {"", "#KillWait=7", "OverKillWait=7", "KillWait", "KillWait=", "=", "= =", "\"",
                           "Include KillWait", "KillWait 7", "ClusterName=x #KillWait=7"}) {
    EXPECT_EQ(ParseSlurmConf(text).kill_wait, absl::Seconds(30)) << text;
  }
}

TEST(ParseSlurmConf, ProctrackType_OnlyLinuxprocReachesWorkers) {
  EXPECT_FALSE(ParseSlurmConf("").signals_every_process);
  EXPECT_FALSE(ParseSlurmConf("ProctrackType=proctrack/cgroup").signals_every_process);
  EXPECT_TRUE(ParseSlurmConf("ProctrackType=proctrack/linuxproc").signals_every_process);
  EXPECT_FALSE(ParseSlurmConf("proctracktype=proctrack/pgid KillWait=3").signals_every_process);
}

TEST(MergeSlurmConf, PartsThatAnyoneDenies_AreDenied) {
  BatchSystem batch{.job = "1", .signals_every_process = true};
  MergeSlurmConf(ParseSlurmConf("KillWait=8 ProctrackType=proctrack/linuxproc"), batch);
  EXPECT_EQ(batch.kill_wait, absl::Seconds(8));
  EXPECT_TRUE(batch.signals_every_process);
  MergeSlurmConf(ParseSlurmConf("ProctrackType=proctrack/pgid"), batch);
  EXPECT_FALSE(batch.signals_every_process);
  MergeSlurmConf(ParseSlurmConf("ProctrackType=proctrack/linuxproc"), batch);  // a batch script's
  EXPECT_FALSE(batch.signals_every_process);
}

TEST(SlurmConfPaths, Variable_IsTheOnlyOne) {
  const auto given = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SLURM_CONF") return "/x/slurm.conf";
    return std::nullopt;
  };
  EXPECT_EQ(SlurmConfPaths(given), std::vector<std::string>{"/x/slurm.conf"});
  EXPECT_EQ(SlurmConfPaths(Nothing).front(), "/etc/slurm/slurm.conf");
}

}  // namespace
}  // namespace ddprun::launcher
