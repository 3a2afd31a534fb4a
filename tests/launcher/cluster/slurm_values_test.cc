#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cluster/host_list.h"
#include "launcher/cluster/slurm_text.h"

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

TEST(ParseSlurmConf, NoKillWait_IsSlurmsDefault) {
  for (const char* text : {"", "#KillWait=7", "OverKillWait=7", "KillWait", "KillWait=", "=", "= =", "\"",
                           "Include KillWait", "KillWait 7", "ClusterName=x #KillWait=7"}) {
    EXPECT_EQ(ParseSlurmConf(text).kill_wait, absl::Seconds(30)) << text;
  }
}

TEST(ParseSlurmConf, ProctrackType_OnlyLinuxprocSignalsEveryProcess) {
  for (const char* text : {"", "ProctrackType=proctrack/cgroup", "proctracktype=proctrack/pgid KillWait=3"}) {
    EXPECT_FALSE(ParseSlurmConf(text).signals_every_process) << text;
  }
  EXPECT_TRUE(ParseSlurmConf("ProctrackType=proctrack/linuxproc").signals_every_process);
}

TEST(MergeSlurmConf, SignalsEveryProcess_OnlyIfBothSaySo) {
  BatchSystem batch{.job = "1", .signals_every_process = true};
  MergeSlurmConf(ParseSlurmConf("KillWait=8 ProctrackType=proctrack/linuxproc"), batch);
  EXPECT_EQ(batch.kill_wait, absl::Seconds(8));
  EXPECT_TRUE(batch.signals_every_process);
  for (const char* type : {"pgid", "linuxproc" /* a batch script's */}) {
    MergeSlurmConf(ParseSlurmConf(absl::StrCat("ProctrackType=proctrack/", type)), batch);
    EXPECT_FALSE(batch.signals_every_process) << type;
  }
}

TEST(SlurmConfPaths, VariableSet_IsTheOnlyPath) {
  const auto given = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SLURM_CONF") return "/x/slurm.conf";
    return std::nullopt;
  };
  EXPECT_EQ(SlurmConfPaths(given), std::vector<std::string>{"/x/slurm.conf"});
  EXPECT_EQ(SlurmConfPaths(Nothing).front(), "/etc/slurm/slurm.conf");
}

TEST(ReadEndTime, Job_IsTheJobsInLocalTime) {
  const absl::TimeZone zone = absl::FixedTimeZone(2 * 60 * 60);
  const absl::Time noon = absl::FromCivil(absl::CivilSecond(2026, 11, 21, 12, 0, 5), zone);
  EXPECT_EQ(ReadEndTime("1234 2026-11-21T12:00:05 1:00\n", "1234", zone), noon);
  EXPECT_EQ(ReadEndTime("1233 2026-11-21T13:00:00 1:00\n1234 2026-11-21T12:00:05 2-00:00:00\n", "1234", zone), noon);
  for (const char* text :
       {"", "1234", "1234 NONE UNLIMITED\n", "1234 2027-11-21T12:00:05 UNLIMITED", "1234 N/A 1:00",
        "12345 2026-11-21T12:00:05 1:00", "1234 2026-13-21T12:00:05 1:00", "slurm_load_jobs error: x"}) {
    EXPECT_EQ(ReadEndTime(text, "1234", zone), std::nullopt) << text;
  }
}

TEST(ExpandTaskCounts, EveryForm_IsExpanded) {
  const std::pair<const char*, const char*> kCases[] = {
      {"1", "1"},           {"1(x2)", "1 1"},       {"4,8", "4 8"},
      {"2,1(x2)", "2 1 1"}, {"2(x3),1", "2 2 2 1"}, {"34,26,2(x2)", "34 26 2 2"},
      {"128(x1)", "128"}};
  for (const auto& [text, expected] : kCases) EXPECT_EQ(absl::StrJoin(ExpandTaskCounts(text).value(), " "), expected);
  EXPECT_EQ(ExpandTaskCounts("8(x100000)")->size(), 100'000u);
}

TEST(ExpandTaskCounts, Malformed_IsAnErrorOfOneLine) {
  for (const char* bad : {"", ",", "1,", "x", "0", "-1", "1(x0)", "1(x)", "1(x2", "1x2)", "1(2)", "(x2)", "1(x2)3",
                          "1 (x2)", "1(x100001)", "1(x60000),1(x60000)", "99999999999999999999", "1\n"}) {
    const auto counts = ExpandTaskCounts(bad);
    ASSERT_EQ(counts.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_FALSE(absl::StrContains(counts.status().message(), '\n')) << bad;
    EXPECT_TRUE(absl::StrContains(counts.status().message(), "is not a list of counts such as 2(x3),1: "))
        << counts.status();
  }
}

}  // namespace
}  // namespace ddprun::launcher
