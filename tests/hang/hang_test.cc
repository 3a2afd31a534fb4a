// Hangs of an unmodified script, with real launchers and Gloo: each names the right rank, with where it is and what it
// waits for; and pauses of healthy ones, which are no hangs. `train.py` has both; DDPRUN_HANG_LIMIT=default runs them
// with the limits that users have.
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/hang/hang_case.h"

namespace ddprun::testing {
namespace {

class HangTest : public ::testing::TestWithParam<Hang> {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }

  std::map<std::string, std::string> Environment(const std::string& hang) const {
    return {{"PYTHON_EXEC", VenvPython()}, {"HANG", hang}, {"FOLDER", dir_.path()}, {"OMP_NUM_THREADS", "1"}};
  }
  static std::vector<std::string> Flags(std::vector<std::string> flags) {
    return HangFlags(std::move(flags), {"tests/hang/train.py"});
  }

  const TempDir dir_;
};

TEST_P(HangTest, OneNode_Hang_NamesRankPlaceAndReason) {
  const Hang& hang = GetParam();
  ExpectNamed(hang, Flags({"--standalone", absl::StrCat("--nproc-per-node=", hang.ranks)}), Environment(hang.name));
}

INSTANTIATE_TEST_SUITE_P(
    Behind, HangTest,
    ::testing::Values(Hang{"sleep", {"for rank 1, which sleeps at train.py:", " in sleep"}},
                      Hang{"stop", {"for rank 1, which is stopped (SIGSTOP)"}},
                      Hang{"locks", {"for rank 1, which waits for ", " in locks"}},
                      Hang{"fifo",
                           {"for rank 1, which opens the FIFO ", "/fifo, which no process opens at the other end"}},
                      Hang{"gil", {"for rank 1, which waits for Python's lock (GIL)", " in native"}},
                      Hang{"spin", {"for rank 1, which is busy", " in spin"}, {{"TIMEOUT", "30"}}},
                      Hang{"child", {"for rank 1, which waits for a child process", "sleep 1000000"}},
                      Hang{"connection", {"for rank 1, which reads the connection to 127.0.0.1:", " in connection"}},
                      Hang{"store", {"for rank 1, which waits for ", " the store at train.py:"}},
                      Hang{"loader", {"for rank 1, ", "its child ", " in __getitem__"}},
                      Hang{"backward", {"for rank 1, ", " in backward"}},
                      Hang{"file_lock", {"for rank 1, which waits for the lock of ", "/lock at train.py:"}},
                      Hang{"pipe", {"for rank 1, which writes to a pipe at train.py:", " in pipe"}},
                      Hang{"receive", {"for rank 1, which waits for another rank to send"}},
                      Hang{"future", {"for rank 1, which waits for another thread at train.py:", " in future"}},
                      Hang{"output", {"for rank 1, which waits for input from a pipe at train.py:", "sleep 1000000"}},
                      Hang{"killed_worker", {"for rank 1, which waits for another thread", " in killed_worker"}},
                      Hang{"dead_owner", {"for rank 1, which waits for ", " in dead_owner"}},
                      Hang{"forked_lock", {"for rank 1, which waits for a child ", "; its child ", " in forked_lock"}},
                      Hang{"unfinished_thread", {"for rank 1, which has run to the end of its program"}},
                      Hang{"new_group", {"for rank 1, which waits ", " in new_group"}},
                      Hang{"late", {" in a collective for rank 1, which sleeps at train.py:"}},
                      Hang{"pipeline", {"for rank 2, which waits for another rank to send", " in pipeline"}},
                      Hang{"mesh", {"for rank 3, which sleeps at train.py:"}, {{"ODD", "3"}}, "", 4},
                      Hang{"save", {"for rank 0, which writes to a pipe at train.py:", " in save"}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(Differ, HangTest,
                         ::testing::Values(Hang{"other", {"rank 1 entered broadcast"}},
                                           Hang{"shape", {"rank 1 entered all_reduce ", "Float[2]"}},
                                           Hang{"barrier", {"rank 1 entered barrier ", " instead"}},
                                           Hang{"uneven", {"rank 1 entered barrier ", " instead"}},
                                           Hang{"order",
                                                {"ranks 0-1 wait for each other: rank 0 waits in all_reduce #2 ",
                                                 "rank 1 waits in all_reduce #2 "}},
                                           Hang{"ring", {"are idle: rank 0 waits for another rank to send at"}},
                                           Hang{"sleep", {"for rank 1, which sleeps"}, {{"MODEL", "fsdp"}}},
                                           Hang{"sleep", {"for rank 1, which sleeps"}, {{"MODEL", "hsdp"}}, "", 4}),
                         NameOf);

TEST_F(HangTest, TwoNodes_RanksEnterDifferentOperations_IsNamedLongBeforeAHangWouldBe) {
  const std::vector<std::string> flags = {"--nnodes=2", "--nproc-per-node=2",
                                          absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()), "--rdzv-id=job",
                                          "tests/hang/train.py"};
  std::map<std::string, std::string> environment = Environment("other");
  environment["ODD"] = "3";
  Launcher a(flags, environment), b(flags, environment);
  for (Launcher* launcher : {&a, &b}) {
    EXPECT_THAT(HangLine(*launcher),
                AllOf(::testing::ContainsRegex("no progress for [1-9]s: ranks 0-2 entered all_reduce #"),
                      ::testing::ContainsRegex("but rank 3 \\(.*\\) entered broadcast #.* instead")));
  }
}

TEST_F(HangTest, TwoNodes_HangOnTheSecond_NamedOnBothAndInShow) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", FreePort());
  const std::vector<std::string> flags =
      Flags({"--nnodes=2", "--nproc-per-node=2", absl::StrCat("--rdzv-endpoint=", endpoint), "--rdzv-id=job"});
  std::map<std::string, std::string> environment = Environment("sleep");
  environment["ODD"] = "3";
  Launcher a(flags, environment), b(flags, environment);
  for (Launcher* launcher : {&a, &b}) {
    EXPECT_THAT(HangLine(*launcher), AllOf(HasSubstr("ranks 0-2 wait in "), HasSubstr("for rank 3 ("),
                                           HasSubstr("which sleeps at train.py:")));
  }
  Process show({"ddprunctl/ddprunctl", absl::StrCat("--server=", endpoint), "show", "job"});
  EXPECT_EQ(show.Wait(), 0) << show.Err();
  EXPECT_THAT(show.Out(), HasSubstr("for rank 3 ("));
}

TEST_F(HangTest, TwoNodes_RankSleepsBeforeEachBackward_IsNamedAsStragglerOnBothAndInShow) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", FreePort());
  // A short limit makes comparisons frequent.
  const std::vector<std::string> flags = {
      "--nnodes=2",    "--nproc-per-node=2", absl::StrCat("--rdzv-endpoint=", endpoint),
      "--rdzv-id=job", "--on-hang=report:2", "tests/hang/train.py"};
  std::map<std::string, std::string> environment = Environment("slow");
  environment["ODD"] = "3";
  Launcher a(flags, environment), b(flags, environment);
  for (Launcher* launcher : {&a, &b}) {
    ASSERT_TRUE(launcher->WaitForErr(" enters collectives ")) << launcher->Err();
    EXPECT_THAT(launcher->Err(), ::testing::ContainsRegex("rank 3 \\(.*\\) enters collectives .* after the others"));
  }
  Process show({"ddprunctl/ddprunctl", absl::StrCat("--server=", endpoint), "show", "job"});
  EXPECT_EQ(show.Wait(), 0) << show.Err();
  EXPECT_THAT(show.Out(), AllOf(HasSubstr("straggler, reported "), HasSubstr("rank 3 (")));
}

class WorkTest : public HangTest {};

TEST_P(WorkTest, OneNode_WorkLongerThanTheLimit_IsNotAHang) {
  if (GetParam().name == "debugged" && access("/usr/bin/gdb", X_OK) != 0) GTEST_SKIP() << "no gdb";
  std::map<std::string, std::string> environment = Environment(GetParam().name);
  environment.merge(std::map<std::string, std::string>{{"LONG", "12"}, {"STEPS", "25"}});
  Finished launcher(0, Flags({"--standalone", "--nproc-per-node=2"}), environment);
  EXPECT_THAT(launcher.Err(), Not(HasSubstr(kHangWords)));
}

INSTANTIATE_TEST_SUITE_P(Rank0, WorkTest,
                         ::testing::Values(Hang{"evaluate"}, Hang{"saving"}, Hang{"pool_of_processes"}, Hang{"program"},
                                           Hang{"loading"}, Hang{"download"}, Hang{"prompt"}, Hang{"debugged"}),
                         NameOf);

TEST_F(HangTest, OnHangRestart_HungRank_IsReplacedAndJobSucceeds) {
  std::map<std::string, std::string> environment = Environment("once");
  environment["STEPS"] = "40";
  Launcher launcher(
      {"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--on-hang=restart:4", "tests/hang/train.py"},
      environment);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("for rank 1, which sleeps"), HasSubstr("killed (--on-hang=restart)")));
}

}  // namespace
}  // namespace ddprun::testing
