#include "launcher/hang/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "tests/launcher/hang/job_builder.h"

namespace ddprun::launcher {
namespace {

using hang::v1::Rank;
using Activity = RankState::Activity;
using Kind = Verdict::Kind;
using Ranks = std::vector<int32_t>;

std::string FirstLine(const JobEvidence& job) {
  const auto verdict = Judge(job);
  if (!verdict) return "";
  const std::string text = HangText(*verdict, job, absl::Seconds(34));
  return text.substr(0, text.find('\n'));
}

void ExpectVerdict(const JobEvidence& job, Kind kind, const Ranks& odd, const Ranks& waiting,
                   Activity activity = Activity::kIdle) {
  const auto verdict = Judge(job);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, kind) << FirstLine(job);
  EXPECT_EQ(verdict->odd, odd) << FirstLine(job);
  EXPECT_EQ(verdict->waiting, waiting) << FirstLine(job);
  EXPECT_EQ(verdict->activity, activity) << FirstLine(job);
}

Rank Past(int32_t number, const std::string& last, const std::string& tensor) {
  RankBuilder rank(number);
  for (int i = 0; i < 5; ++i) {
    rank.Enter("all_reduce", "Float[10]", false).Enter("all_reduce", "Float[1]", false);
  }
  return rank.Enter("all_reduce", "Float[10]", false).Enter(last, tensor, true);
}

hang::v1::Connection Link(const std::string& own, const std::string& peer, uint32_t backoff) {
  hang::v1::Connection connection;
  connection.set_own(own);
  connection.set_peer(peer);
  connection.set_backoff(backoff);
  connection.set_retransmits(backoff);
  connection.set_unacknowledged(backoff > 0 ? 900 : 0);
  connection.set_silent_ms(40'000);
  return connection;
}

// ---- one group ----

TEST(JudgeTest, Judge_NoPendingOperation_NoRankWaits) {
  EXPECT_FALSE(
      Judge(JobOf({RankBuilder(0).Done().Cpu(1), RankBuilder(1).Done().Cpu(1), RankBuilder(2).Done().Cpu(1)})));
  EXPECT_FALSE(Judge({}));
  EXPECT_FALSE(Judge({4, 1, {}}));
}

TEST(JudgeTest, Judge_RankBehind_IsNamed) {
  const JobEvidence job = JobOf({RankBuilder(0).Done().Wait(), RankBuilder(1).Done(), RankBuilder(2).Done().Wait(),
                                 RankBuilder(3).Done().Wait()});
  ExpectVerdict(job, Kind::kBehind, {1}, {0, 2, 3});
  EXPECT_EQ(
      FirstLine(job),
      "no progress for 34s: ranks 0, 2-3 wait in all_reduce #2 (Float[10]) of the default group for rank 1, which "
      "sleeps at train.py:31 in load");
  const auto verdict = Judge(job);
  EXPECT_EQ(verdict->replaceable, Ranks{1});
  EXPECT_EQ(verdict->timeout, absl::Minutes(10));
  EXPECT_EQ(verdict->left, absl::Seconds(560));
  EXPECT_TRUE(absl::StrContains(HangText(*verdict, job, absl::Seconds(34)),
                                "\n  the operation's timeout ends the job in 9m20s"));
}

TEST(JudgeTest, Judge_SeveralNodes_HostsAreNamed) {
  const JobEvidence job = JobOf({{RankBuilder(0).Wait()}, {RankBuilder(1)}}, 2);
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "for rank 1 (node-b), which sleeps at ")) << FirstLine(job);
}

TEST(JudgeTest, Judge_RankBeforeItsFirstCollective_IsBehind) {
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1)});
  ExpectVerdict(job, Kind::kBehind, {1}, {0});
}

TEST(JudgeTest, Judge_RankThatWorks_IsBusy) {
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), RankBuilder(1).Cpu(0.9)}), Kind::kBehind, {1}, {0}, Activity::kBusy);
  EXPECT_TRUE(Judge(JobOf({RankBuilder(0).Wait(), RankBuilder(1).Cpu(0.9)}))->replaceable.empty());

  RankBuilder starved(1);
  starved.Cpu(0.04)->set_waited(0.9);
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), starved}), Kind::kBehind, {1}, {0}, Activity::kBusy);

  RankBuilder moving(1);
  moving->set_net(2e6);
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), moving}), Kind::kBehind, {1}, {0}, Activity::kBusy);
  EXPECT_TRUE(absl::StrContains(FirstLine(JobOf({RankBuilder(0).Wait(), moving})), "moves data (2.0 MB/s)"));

  RankBuilder device(1);
  device->mutable_process()->add_native("#3 cudaStreamSynchronize (libcudart.so)");
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), device}), Kind::kBehind, {1}, {0}, Activity::kBusy);
}

TEST(JudgeTest, Judge_OneIdleAmongBusyRanks_IsIdle) {
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1).Cpu(1), RankBuilder(2)});
  ExpectVerdict(job, Kind::kBehind, {1, 2}, {0});
  EXPECT_EQ(Judge(job)->replaceable, Ranks{2});
}

TEST(JudgeTest, Judge_InterpreterLockHeld_NamesTheHolder) {
  RankBuilder rank(1);
  rank->mutable_process()->set_call("futex");
  rank->mutable_process()->set_state("S");
  auto* thread = rank->mutable_process()->add_threads();
  thread->set_holds_lock(true);
  thread->add_frames()->set_file("/home/user/native.py");
  thread->mutable_frames(0)->set_line(7);
  thread->mutable_frames(0)->set_function("hold");
  rank.Cpu(0.01)->set_waited(0.9);  // its main thread wakes up again and again
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), rank});
  ExpectVerdict(job, Kind::kBehind, {1}, {0});
  EXPECT_TRUE(absl::StrContains(FirstLine(job),
                                "waits for Python's lock (GIL) at train.py:31 in load; the thread that "
                                "holds it is at native.py:7 in hold"))
      << FirstLine(job);
}

TEST(JudgeTest, Judge_ChildThatWaits_IsNamed) {
  RankBuilder rank(1);
  rank->mutable_process()->set_pid(31936);  // higher than the child's: the numbers start again
  rank->mutable_process()->set_call("wait4");
  auto* helper = rank->add_children();
  helper->set_pid(4710);
  helper->set_command("python -c from multiprocessing.resource_tracker import main;main(9)");
  auto* child = rank->add_children();
  child->set_pid(4711);
  child->set_command("sleep 1000000");
  child->set_state("S");
  child->set_call("clock_nanosleep");
  EXPECT_TRUE(
      absl::StrContains(FirstLine(JobOf({RankBuilder(0).Wait(), rank})),
                        "waits for a child process at train.py:31 in load; its child 4711 (sleep 1000000) sleeps"))
      << FirstLine(JobOf({RankBuilder(0).Wait(), rank}));
}

TEST(JudgeTest, Judge_DataLoaderWorker_OneThatWaitsForWorkIsNotTheCause) {
  RankBuilder rank(1);
  for (const auto& [pid, file, call] : {std::tuple(900, "/home/user/spawn.py", "read"),  // the parent
                                        std::tuple(4711, "/usr/lib/python3.11/multiprocessing/connection.py", "poll"),
                                        std::tuple(4712, "/home/user/data.py", "read")}) {
    auto* child = rank->add_children();
    child->set_pid(pid);
    child->set_ancestor(pid == 900);
    child->set_state("S");
    child->set_call(call);
    if (std::string(call) == "read") child->set_target("/data/x");
    for (const char* frame : {file, "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py"}) {
      child->add_frames()->set_file(frame);
      child->mutable_frames(child->frames_size() - 1)->set_line(8);
      child->mutable_frames(child->frames_size() - 1)->set_function("__getitem__");
    }
  }
  const std::string line = FirstLine(JobOf({RankBuilder(0).Wait(), rank}));
  EXPECT_TRUE(absl::StrContains(line, "; its child 4712 reads /data/x at data.py:8 in __getitem__")) << line;
  EXPECT_FALSE(absl::StrContains(line, "4711")) << line;
}

TEST(JudgeTest, Judge_ReasonsToWait_AreNamed) {
  struct Case {
    std::string file, function, call, native, text;
  };
  for (const Case& wait : {
           Case{"threading.py", "wait", "futex", "",
                "waits for another thread at train.py:31 in load; that may be one"},
           Case{"threading.py", "_shutdown", "futex", "", "has run to the end of its program and waits for another"},
           Case{"socket.py", "accept", "accept4", "", "waits for a connection to a descriptor at"},
           Case{"context.py", "load", "futex", "#2 (_multiprocessing.cpython-311.so)", "waits for a lock of multiproc"},
           Case{"subprocess.py", "communicate", "poll", "", "waits for input at train.py:31 in load; its child 4711 ("},
       }) {
    RankBuilder rank(1);
    auto* process = rank->mutable_process();
    const hang::v1::Frame user = process->frames(0);
    process->set_call(wait.call);
    process->clear_native();
    process->add_native(wait.native);
    process->clear_frames();
    auto* library = process->add_frames();
    library->set_file("/usr/lib/python3.11/" + wait.file);
    library->set_function(wait.function);
    *process->add_frames() = user;
    *process->add_threads()->add_frames() = user;
    auto* child = rank->add_children();
    child->set_pid(4711);
    child->set_command("sleep 1000000");
    const std::string line = FirstLine(JobOf({RankBuilder(0).Wait(), rank}));
    EXPECT_TRUE(absl::StrContains(line, "for rank 1, which " + wait.text)) << line;
  }
}

TEST(JudgeTest, Judge_Debugger_IsNeverAFault) {
  RankBuilder pdb(1);
  pdb->mutable_process()->add_frames()->set_file("/usr/lib/python3.11/pdb.py");
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), pdb}), Kind::kBehind, {1}, {0}, Activity::kDebugger);
  EXPECT_TRUE(Judge(JobOf({RankBuilder(0).Wait(), pdb}))->replaceable.empty());

  RankBuilder gdb(0);
  gdb.Wait()->mutable_process()->set_traced(true);
  gdb->mutable_process()->set_state("t");
  ExpectVerdict(JobOf({gdb, RankBuilder(1)}), Kind::kBehind, {1}, {0}, Activity::kDebugger);

  RankBuilder own_file(1);
  own_file->mutable_process()->add_frames()->set_file("/home/user/code.py");
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), own_file}), Kind::kBehind, {1}, {0});
}

TEST(JudgeTest, Judge_StoppedRank_IsNamedThoughItDoesNotAnswer) {
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1).Stop()});
  ExpectVerdict(job, Kind::kBehind, {1}, {0});
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "is stopped (SIGSTOP)"));
  EXPECT_EQ(Judge(job)->replaceable, Ranks{1});
}

TEST(JudgeTest, Judge_RankStoppedInsideTheOperation_IsNamed) {
  RankBuilder stopped(1);
  stopped.Wait()->mutable_process()->set_state("T");
  ExpectVerdict(JobOf({RankBuilder(0).Wait(), stopped, RankBuilder(2).Wait()}), Kind::kStopped, {1}, {0, 2});
}

TEST(JudgeTest, Judge_UnevenEnd_NamesTheRankThatHasEnded) {
  Rank ended;
  ended.set_rank(1);
  ended.set_ended("exited with code 0");
  const JobEvidence job = JobOf({RankBuilder(0).Done().Enter("barrier", "", true), ended});
  ExpectVerdict(job, Kind::kEnded, {1}, {0}, Activity::kGone);
  EXPECT_EQ(
      FirstLine(job),
      "no progress for 34s: rank 0 waits in barrier #2 of the default group for rank 1, which exited with code 0");
  EXPECT_TRUE(Judge(job)->replaceable.empty()) << "there is no process to kill";
}

TEST(JudgeTest, Judge_AllInside_NoRankIsNamed) {
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1).Wait()});
  ExpectVerdict(job, Kind::kInside, {}, {0, 1});
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "all ranks are in all_reduce #1"));
}

TEST(JudgeTest, Judge_RankThatHasLeftTheOperation_IsNamedButNotBlamed) {
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1).Done(), RankBuilder(2).Wait()});
  ExpectVerdict(job, Kind::kInside, {}, {0, 2});
  EXPECT_EQ(
      FirstLine(job),
      "no progress for 34s: ranks 0, 2 are in all_reduce #1 (Float[10]) of the default group, which does not end; "
      "rank 1 has completed it and sleeps at train.py:31 in load");
}

TEST(JudgeTest, Judge_GroupWithUnknownMembers_OnlyRankOutsideOfCollectivesIsNamed) {
  const auto asleep = RankBuilder(3).Done();
  const JobEvidence job = JobOf(
      {RankBuilder(0).Done().Wait("1"), RankBuilder(1).Done().Wait("2"), RankBuilder(2).Done().Wait("1"), asleep});
  ExpectVerdict(job, Kind::kBehind, {3}, {0, 2});
  EXPECT_EQ(FirstLine(job),
            "no progress for 34s: ranks 0, 2 wait in all_reduce #1 (Float[10]) of group 1 for rank 3, which sleeps at "
            "train.py:31 in load; rank 1 waits in other operations");
  EXPECT_TRUE(Judge(job)->replaceable.empty());
  ExpectVerdict(JobOf({RankBuilder(0).Done().Join("1", {0, 2}).Wait("1"), RankBuilder(1).Done(),
                       RankBuilder(2).Done().Join("1", {0, 2}).Wait("1")}),
                Kind::kInside, {}, {0, 2});
}

TEST(JudgeTest, Judge_AllIdleOutsideOfCollectives_NamesAll) {
  ExpectVerdict(JobOf({RankBuilder(0).Done(), RankBuilder(1).Done()}), Kind::kIdle, {0, 1}, {});
  EXPECT_FALSE(Judge(JobOf({RankBuilder(0), RankBuilder(1)}))) << "no rank has used a collective";
  EXPECT_FALSE(Judge(JobOf({RankBuilder(0).Done(), RankBuilder(1).Done().Cpu(1)})));
}

// ---- ranks that differ ----

TEST(JudgeTest, Judge_MinorityEnteredAnotherOperation_IsNamed) {
  const JobEvidence job = JobOf({RankBuilder(0).Done().Enter("barrier", "", true), RankBuilder(1).Done().Wait(),
                                 RankBuilder(2).Done().Enter("barrier", "", true)});
  ExpectVerdict(job, Kind::kDiffer, {1}, {0, 2});
  EXPECT_EQ(FirstLine(job),
            "no progress for 34s: ranks 0, 2 entered barrier #2 of the default group, but rank 1 entered all_reduce #2 "
            "(Float[10]) instead at train.py:50 in main");
  EXPECT_EQ(Judge(job)->replaceable, Ranks{1});
}

TEST(JudgeTest, Judge_MinorityEnteredOtherTensors_IsNamed) {
  for (const char* tensor : {"Float[11]", "Half[10]", "Float[10, 2]", "Float[]"}) {
    ExpectVerdict(
        JobOf({RankBuilder(0).Enter("all_reduce", tensor, true), RankBuilder(1).Wait(), RankBuilder(2).Wait()}),
        Kind::kDiffer, {0}, {1, 2});
  }
  ExpectVerdict(JobOf({RankBuilder(0).Enter("all_reduce", "Float[5, 2]", true), RankBuilder(1).Wait()}), Kind::kInside,
                {}, {0, 1});
  ExpectVerdict(JobOf({RankBuilder(0).Enter("all_to_all", "Float[5]", true),
                       RankBuilder(1).Enter("all_to_all", "Float[9]", true)}),
                Kind::kInside, {}, {0, 1});
}

TEST(JudgeTest, Judge_TwoRanksDiffer_ThePastDecides) {
  const JobEvidence job = JobOf({Past(0, "all_reduce", "Float[1]"), Past(1, "barrier", "")});
  ExpectVerdict(job, Kind::kDiffer, {1}, {0});
}

TEST(JudgeTest, Judge_TwoRanksDifferWithoutAPast_BothAreNamed) {
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1).Enter("barrier", "", true)});
  ExpectVerdict(job, Kind::kDiffer, {0, 1}, {});
  EXPECT_TRUE(Judge(job)->replaceable.empty());
  EXPECT_TRUE(absl::StrContains(FirstLine(job),
                                "the ranks do not agree about operation 1 of the default group: rank 0 "
                                "entered all_reduce #1 (Float[10]) at train.py:50 in main; rank 1 entered "
                                "barrier #1"))
      << FirstLine(job);
}

TEST(JudgeTest, Judge_TwoRanksWithContradictingPasts_BothAreNamed) {
  RankBuilder other(1);
  for (int i = 0; i < 5; ++i) other.Enter("all_reduce", "Float[10]", false).Enter("barrier", "", false);
  other.Enter("all_reduce", "Float[10]", false).Enter("barrier", "", true);
  ExpectVerdict(JobOf({Past(0, "all_reduce", "Float[1]"), other}), Kind::kDiffer, {0, 1}, {});
}

TEST(FindMismatchTest, FindMismatch_NothingHangs_NamesTheFirstDifference) {
  RankBuilder odd(1);
  odd.Done().Enter("all_reduce", "Float[4]", false).Enter("all_reduce", "Float[5]", false);
  const auto others = [](int32_t rank) {
    return RankBuilder(rank)
        .Done()
        .Enter("all_reduce", "Float[3]", false)
        .Enter("all_reduce", "Float[3]", false)
        .Done();
  };
  const auto mismatch = FindMismatch(JobOf({others(0), odd, others(2)}));
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->number, 2);
  EXPECT_EQ(mismatch->odd, Ranks{1});
  EXPECT_EQ(mismatch->others, (Ranks{0, 2}));
  EXPECT_EQ(mismatch->text,
            "ranks of the default group entered different operations: ranks 0, 2 entered all_reduce #2 (Float[3]), "
            "rank 1 entered all_reduce #2 (Float[4])");
  EXPECT_FALSE(FindMismatch(JobOf({others(0), others(1)})));
}

TEST(FindMismatchTest, FindMismatch_RanksRememberOtherPartsOfTheirPasts_ComparesWhatTheyShare) {
  RankBuilder newer(1);
  for (int i = 0; i < 9; ++i) newer.Done();
  newer.Group("default_pg").mutable_collectives()->DeleteSubrange(0, 4);
  newer.Group("default_pg").mutable_collectives(0)->set_name("barrier");
  RankBuilder older(0);
  for (int i = 0; i < 6; ++i) older.Done();
  const auto mismatch = FindMismatch(JobOf({older, newer}));
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->number, 5);
  EXPECT_EQ(mismatch->odd, Ranks{1}) << "rank 0 repeats what it did before";
}

TEST(JudgeTest, Judge_HangAfterAMismatch_MentionsIt) {
  // One collective was skipped, which NCCL does not notice until the end.
  const JobEvidence job =
      JobOf({RankBuilder(0).Enter("all_reduce", "Float[1]", false).Done().Wait(), RankBuilder(1).Done().Done(),
             RankBuilder(2).Enter("all_reduce", "Float[1]", false).Done().Wait()});
  ExpectVerdict(job, Kind::kBehind, {1}, {0, 2});
  EXPECT_TRUE(absl::StrContains(HangText(*Judge(job), job, absl::Seconds(34)),
                                "\n  before that, ranks of the default group entered different operations: "));
}

// ---- C++ ----

TEST(JudgeTest, Judge_CppProgram_IsNamedByItsInnermostFunction) {
  const auto job = [](const std::string& command, const std::vector<std::string>& stack) {
    RankBuilder rank(1);
    rank->mutable_process()->clear_frames();
    rank->mutable_process()->set_command(command);
    rank->mutable_process()->clear_native();
    for (const std::string& line : stack) rank->mutable_process()->add_native(line);
    return JobOf({RankBuilder(0).Wait(), rank});
  };
  const std::vector<std::string> stack = {"#0 0x7f01 clock_nanosleep (libc.so.6+0x1)",
                                          "#1 0x7f02 std::this_thread::sleep_for<>() (trainer+0x10)",
                                          "#2 0x7f03 (anonymous namespace)::Load(int) (trainer+0x20)",
                                          "#3 0x7f04 ddprun::RunWorker() (trainer+0x30)",
                                          "#4 0x7f05 c10d::Reducer::run() (libtorch_cpu.so+0x1)",
                                          "#5 0x7f06 main (trainer+0x40)"};
  const std::string start = "no progress for 34s: rank 0 waits in all_reduce #1 (Float[10]) of the default group for ";
  EXPECT_EQ(FirstLine(job("/opt/trainer --steps=3", stack)),
            start + "rank 1, which sleeps in (anonymous namespace)::Load(int) (trainer+0x20)");
  EXPECT_EQ(FirstLine(job("/opt/trainer", {stack[0], stack[1], "#2 0x7f03 (libown.so+0x20)"})),
            start + "rank 1, which sleeps at libown.so+0x20");
  for (const auto& [command, native] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"/usr/bin/python3 train.py", {stack[0], "#1 0x1 Load() (own.cpython-311.so+0x1)"}},
           {"train.py", {stack[0], "#1 0x1 Load() (own.so+0x1)", "#2 0x1 call (libpython3.11.so+0x1)"}},
           {"/opt/trainer", {stack[0], stack[3]}},
           {"/opt/trainer", {"", "(", "#", ")", "# (+0x)", "#1 0x1 x (y"}}}) {
    EXPECT_EQ(FirstLine(job(command, native)), start + "rank 1, which sleeps") << native.back();
  }
}

// ---- several groups ----

TEST(JudgeTest, Judge_TwoOrdersOfGroups_NamesTheCycle) {
  const auto rank = [](int32_t number, const char* own, const char* other) {
    return RankBuilder(number).Join(own, {0, 1}).Join(other, {0, 1}).Wait(own);
  };
  const JobEvidence job = JobOf({rank(0, "1", "2"), rank(1, "2", "1"), RankBuilder(2).Wait(), RankBuilder(3).Wait()});
  ExpectVerdict(job, Kind::kCycle, {0, 1}, {2, 3});
  EXPECT_TRUE(Judge(job)->replaceable.empty());
  EXPECT_EQ(
      FirstLine(job),
      "no progress for 34s: ranks 0-1 wait for each other: rank 0 waits in all_reduce #1 (Float[10]) of group 1 for "
      "rank 1 at train.py:50 in main; rank 1 waits in all_reduce #1 (Float[10]) of group 2 for rank 0 at "
      "train.py:50 in main; ranks 2-3 wait for them");
}

TEST(JudgeTest, Judge_OperationsOfADevice_OnlyTheFirstPendingOneHasBegun) {
  const auto rank = [](int32_t number) { return RankBuilder(number).Join("1", {0, 1}).Join("2", {0, 1}).OnDevice(); };
  // All have entered both, in two orders.
  ExpectVerdict(JobOf({rank(0).Wait("1").Wait("2"), rank(1).Wait("2").Wait("1")}), Kind::kCycle, {0, 1}, {});
  ExpectVerdict(JobOf({rank(0).Wait("1").Wait("2"), rank(1).Wait("1").Wait("2")}), Kind::kInside, {}, {0, 1});
  // A receive to which no rank sends, before the collective that all have entered.
  const JobEvidence job =
      JobOf({RankBuilder(0).OnDevice().Wait(), RankBuilder(1).OnDevice().PointToPoint("recv 1<-0").Wait(),
             RankBuilder(2).OnDevice().Wait()});
  ExpectVerdict(job, Kind::kCycle, {0, 1}, {2});
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "; rank 1 waits in recv 1<-0 #1 of the default group for rank 0"))
      << FirstLine(job);
  // A rank that has entered neither.
  ExpectVerdict(JobOf({rank(0).Wait("1").Wait("default_pg"), rank(1), RankBuilder(2).OnDevice().Wait()}), Kind::kBehind,
                {1}, {0});
}

TEST(JudgeTest, Judge_CycleWithARankThatIsElsewhere_NamesThatRank) {
  const auto rank = [](int32_t number, const char* own, const char* other) {
    return RankBuilder(number).Join(own, {0, 1}).Join(other, {0, 1}).Wait(own);
  };
  ExpectVerdict(JobOf({rank(0, "1", "2"), rank(1, "2", "1").Sleep()}), Kind::kBehind, {1}, {0});
}

TEST(JudgeTest, Judge_Hsdp_NamesTheRankBehindAllGroups) {
  const auto rank = [](int32_t number, const char* shard, const Ranks& shards, const char* replicas,
                       const Ranks& copies) { return RankBuilder(number).Join(shard, shards).Join(replicas, copies); };
  // Rank 3 sleeps; its shard waits for it, and so do the other replicas, one of them indirectly.
  const JobEvidence job =
      JobOf({rank(0, "s0", {0, 1}, "r0", {0, 2}).Wait("r0"), rank(1, "s0", {0, 1}, "r1", {1, 3}).Wait("r1"),
             rank(2, "s1", {2, 3}, "r0", {0, 2}).Wait("s1"), rank(3, "s1", {2, 3}, "r1", {1, 3})});
  const auto verdict = Judge(job);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kBehind);
  EXPECT_EQ(verdict->odd, Ranks{3});
  EXPECT_EQ(verdict->waiting.size() + verdict->waiting_elsewhere.size(), 3u);
  EXPECT_EQ(verdict->replaceable, Ranks{3});
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "; ranks 0, ")) << FirstLine(job);
}

TEST(JudgeTest, Judge_TensorParallel_OtherGroupsOfTheSameNameAreApart) {
  const auto member = [](int32_t number, const Ranks& members) { return RankBuilder(number).Join("tp", members); };
  // Groups {0, 1} and {2, 3} are called alike; the first one is a step ahead.
  const JobEvidence job = JobOf({member(0, {0, 1}).Enter("all_reduce", "Float[1]", false, "tp").Wait("tp"),
                                 member(1, {0, 1}).Enter("all_reduce", "Float[1]", false, "tp"),
                                 member(2, {2, 3}).Enter("all_reduce", "Float[9]", false, "tp").Cpu(1),
                                 member(3, {2, 3}).Enter("all_reduce", "Float[9]", false, "tp").Cpu(1)});
  ExpectVerdict(job, Kind::kBehind, {1}, {0});
  EXPECT_FALSE(FindMismatch(job));
}

TEST(JudgeTest, Judge_RankWithoutEntriesOfAGroup_IsAMemberOnlyIfKnown) {
  ExpectVerdict(JobOf({RankBuilder(0).Wait("tp"), RankBuilder(1), RankBuilder(2)}), Kind::kInside, {}, {0});
  ExpectVerdict(JobOf({RankBuilder(0).Join("tp", {0, 1}).Wait("tp"), RankBuilder(1), RankBuilder(2)}), Kind::kBehind,
                {1}, {0});
}

TEST(JudgeTest, Judge_Pipeline_NamesTheStageThatAllWaitFor) {
  // Rank 3 receives from 2, 2 from 1, and 0 receives a gradient from 1, which sleeps.
  const JobEvidence job = JobOf({RankBuilder(0).PointToPoint("recv 0<-1"), RankBuilder(1),
                                 RankBuilder(2).PointToPoint("recv 2<-1"), RankBuilder(3).PointToPoint("recv 3<-2")});
  const auto verdict = Judge(job);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kBehind);
  EXPECT_EQ(verdict->odd, Ranks{1});
  EXPECT_EQ(verdict->waiting, Ranks{0});
  EXPECT_EQ(verdict->waiting_elsewhere, (Ranks{2, 3}));
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "rank 0 waits in recv 0<-1 #1 of the default group for rank 1, which "))
      << FirstLine(job);
}

TEST(JudgeTest, Judge_PipelineInAGroup_RanksAreThoseOfTheGroup) {
  const JobEvidence job = JobOf({RankBuilder(0), RankBuilder(1).Join("pp", {1, 3}), RankBuilder(2),
                                 RankBuilder(3).Join("pp", {1, 3}).PointToPoint("recv 1<-0", "pp")});
  ExpectVerdict(job, Kind::kBehind, {1}, {3});
}

TEST(JudgeTest, Judge_SendAndReceiveMeet_NoRankIsNamed) {
  ExpectVerdict(JobOf({RankBuilder(0).PointToPoint("send 0->1"), RankBuilder(1).PointToPoint("recv 1<-0")}),
                Kind::kInside, {}, {0, 1});
  ExpectVerdict(JobOf({RankBuilder(0).PointToPoint("send 0->1"), RankBuilder(1).PointToPoint("send 1->0")}),
                Kind::kCycle, {0, 1}, {});
}

TEST(JudgeTest, Judge_NoFlightRecorder_NativeStacksTellWhoWaits) {
  const auto rank = [](int32_t number, bool waits) {
    RankBuilder builder(number);
    if (waits) builder.Wait();
    builder->clear_groups();
    builder->set_recorded(false);
    return builder;
  };
  const JobEvidence job = JobOf({rank(0, true), rank(1, false), rank(2, true)});
  ExpectVerdict(job, Kind::kBehind, {1}, {0, 2});
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "ranks 0, 2 wait in a collective for rank 1, which sleeps"));
  EXPECT_TRUE(Judge(job)->replaceable.empty()) << "inferred only";
}

// ---- unknown ranks ----

TEST(JudgeTest, Judge_UnknownNode_IsNamedAsUnknownAndNeverBlamed) {
  JobEvidence job = JobOf({{RankBuilder(0).Wait(), RankBuilder(1).Wait()}, {}}, 4);
  ExpectVerdict(job, Kind::kInside, {}, {0, 1});
  EXPECT_EQ(FirstLine(job),
            "no progress for 34s: ranks 0-1 are in all_reduce #1 (Float[10]) of the default group, which does not end; "
            "nothing is known about ranks 2-3");
  for (const int32_t rank : {2, 3}) job.nodes[1].add_ranks()->set_rank(rank);
  EXPECT_TRUE(absl::EndsWith(FirstLine(job), "; nothing is known about ranks 2-3 (node-b)")) << FirstLine(job);
}

TEST(JudgeTest, Judge_UnknownRankBesideOneBehind_OnlyTheKnownOneIsBlamed) {
  Rank unknown;
  unknown.set_rank(2);
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), RankBuilder(1), unknown});
  ExpectVerdict(job, Kind::kBehind, {1}, {0});
  EXPECT_EQ(Judge(job)->unknown, Ranks{2});
}

TEST(JudgeTest, Judge_RankWithoutRecorderAndStacks_IsNotBlamed) {
  RankBuilder silent(1);
  silent->set_recorded(false);
  silent->mutable_process()->clear_native();
  const JobEvidence job = JobOf({RankBuilder(0).Wait(), silent});
  ExpectVerdict(job, Kind::kInside, {}, {0});
  EXPECT_TRUE(absl::EndsWith(FirstLine(job),
                             "rank 0 is in all_reduce #1 (Float[10]) of the default group, which does not "
                             "end; the collectives of rank 1 are unknown"))
      << FirstLine(job);
}

TEST(JudgeTest, Judge_ProcessThatMayNotBeRead_IsNamedAsBehindButNeverReplaced) {
  RankBuilder rank(1);
  rank.Done()->clear_process();
  const JobEvidence job = JobOf({RankBuilder(0).Done().Wait(), rank});
  ExpectVerdict(job, Kind::kBehind, {1}, {0}, Activity::kUnknown);
  EXPECT_TRUE(absl::StrContains(FirstLine(job), "rank 1, which runs; nothing more is known about it"));
  EXPECT_TRUE(Judge(job)->replaceable.empty());
}

// ---- connections ----

TEST(JudgeTest, Judge_BrokenConnection_NamesBothEnds) {
  RankBuilder from(0);
  *from.Wait()->add_connections() = Link("10.0.0.1:1", "10.0.0.2:2", 5);
  RankBuilder to(1);
  *to.Wait()->add_connections() = Link("10.0.0.2:2", "10.0.0.1:1", 0);
  const JobEvidence job = JobOf({{from}, {to, RankBuilder(2).Wait()}}, 3);
  ExpectVerdict(job, Kind::kLink, {0, 1}, {0, 1, 2});
  EXPECT_EQ(FirstLine(job),
            "no progress for 34s: all ranks are in all_reduce #1 (Float[10]) of the default group, but data does not "
            "arrive from rank 0 (node-a) to rank 1 (node-b) (5 retransmissions, nothing received for 40s)");
  EXPECT_TRUE(Judge(job)->replaceable.empty());
}

TEST(JudgeTest, Judge_LoopbackAndForeignConnections_AreNotTakenForLinks) {
  RankBuilder from(0);
  *from.Wait()->add_connections() = Link("127.0.0.1:1", "127.0.0.1:2", 5);  // on node-a
  RankBuilder to(1);
  *to.Wait()->add_connections() = Link("127.0.0.1:2", "127.0.0.1:1", 0);  // on node-b
  ExpectVerdict(JobOf({{from}, {to}}, 2), Kind::kInside, {}, {0, 1});
}

TEST(JudgeTest, Judge_OneRankSleepsAndAConnectionIsBroken_TheRankIsNamed) {
  RankBuilder from(0);
  *from.Wait()->add_connections() = Link("10.0.0.1:1", "10.0.0.2:2", 5);
  RankBuilder to(1);
  *to->add_connections() = Link("10.0.0.2:2", "10.0.0.1:1", 0);
  ExpectVerdict(JobOf({from, to}), Kind::kBehind, {1}, {0});
}

// ---- text ----

TEST(HangTextTest, HangText_HostileTexts_AreOneCleanLineEach) {
  RankBuilder waiting(0);
  waiting.Enter("all\nreduce\x1b[31m", "Float[1\n]", true, "group\r\n");
  RankBuilder odd(1);
  odd.Join("group\r\n", {0, 1});
  waiting.Join("group\r\n", {0, 1});
  odd->mutable_process()->mutable_frames(0)->set_file("/home/\xff\n/x\ny.py");
  odd->mutable_process()->mutable_frames(0)->set_function(std::string(5000, 'f'));
  odd->mutable_process()->set_call("read");
  odd->mutable_process()->set_target("/tmp/\x1b[2J\n");
  JobEvidence job = JobOf({{waiting}, {odd}}, 2);
  job.nodes[1].set_host("node\nb");
  const auto verdict = Judge(job);
  ASSERT_TRUE(verdict);
  ASSERT_EQ(verdict->kind, Kind::kBehind);
  const std::string text = HangText(*verdict, job, absl::Seconds(34));
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_FALSE(HasControl(line)) << line;
    EXPECT_LT(line.size(), 2000u);
    EXPECT_EQ(absl::StartsWith(line, "  "), lines++ > 0) << line;
  }
}

TEST(HangTextTest, HangText_ManyRanks_AreCounted) {
  std::vector<Rank> ranks = {RankBuilder(0).Wait()};
  for (int32_t rank = 1; rank < 9; ++rank) ranks.push_back(RankBuilder(rank));
  EXPECT_TRUE(absl::EndsWith(FirstLine(JobOf(ranks)), " and 5 more (ranks 4-8)")) << FirstLine(JobOf(ranks));
}

// ---- hostile evidence ----

TEST(JudgeTest, Judge_ExtremeNumbers_AreHarmless) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t value : {kLeast, int64_t{-1}, int64_t{0}, kMost}) {
    for (const double amount : {-1.0, 1e308, std::numeric_limits<double>::infinity(), std::nan("")}) {
      RankBuilder rank(0);
      rank.Wait();
      auto* operation = rank.Group("default_pg").mutable_collectives(0);
      operation->set_number(value);
      operation->set_age_ms(value);
      operation->set_timeout_ms(value);
      rank.Group("default_pg").set_entered(value);
      rank.Join("default_pg", {-5, 0, 1, 1, 1 << 30});
      rank->set_cpu(amount);
      rank->set_io(amount);
      rank->set_net(amount);
      rank->mutable_process()->set_pid(value);
      rank->add_connections()->set_silent_ms(value);
      Rank empty;
      const JobEvidence job = JobOf({{rank, rank}, {RankBuilder(1), RankBuilder(1 << 20), RankBuilder(-7), empty}}, 2);
      if (const auto verdict = Judge(job)) HangText(*verdict, job, absl::Milliseconds(value));
      FindMismatch(job);
    }
  }
}

TEST(JudgeTest, Judge_RandomEvidence_NamesOnlyRanksOfTheJob) {
  std::mt19937 random(20'260);
  const auto any = [&](int bound) { return static_cast<int>(random() % bound); };
  const std::vector<std::string> groups = {"default_pg", "tp", "", "pp"};
  const std::vector<std::string> peers = {"send 0->1", "recv 1<-0", "recv 2<-", "->", "send 3->99999999999", "x"};
  int verdicts = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Rank> ranks;
    for (int i = any(6); i >= 0; --i) {
      RankBuilder rank(any(7) - 1);
      for (int steps = any(6); steps > 0; --steps) {
        rank.Enter(any(4) ? "all_reduce" : "barrier", any(3) ? "Float[10]" : "[", any(3) == 0, groups[any(4)]);
      }
      if (any(3) == 0) rank.PointToPoint(peers[any(6)], groups[any(4)]);
      if (any(3) == 0) rank.Join(groups[any(4)], {any(7), any(7) - 2});
      if (any(8) == 0) rank.Stop();
      if (any(8) == 0) rank->set_ended("ended");
      if (any(4) == 0) rank->mutable_process()->Clear();
      if (any(4) == 0) rank->clear_process();
      if (any(4) == 0) *rank->add_connections() = Link(absl::StrCat(any(3)), absl::StrCat(any(3)), any(5));
      ranks.push_back(rank);
    }
    const JobEvidence job = JobOf({ranks, {}}, 5);
    const auto verdict = Judge(job);
    FindMismatch(job);
    if (!verdict) continue;
    ++verdicts;
    HangText(*verdict, job, absl::Seconds(34));
    for (const auto& list : {verdict->odd, verdict->waiting, verdict->waiting_elsewhere, verdict->unknown}) {
      for (size_t i = 0; i < list.size(); ++i) {
        EXPECT_TRUE(list[i] >= 0 && list[i] < 5);
        EXPECT_TRUE(i == 0 || list[i - 1] < list[i]);
      }
    }
    for (const int32_t rank : verdict->odd) {
      EXPECT_EQ(std::count(verdict->unknown.begin(), verdict->unknown.end(), rank), 0) << "seed 20260, job " << round;
    }
  }
  EXPECT_GT(verdicts, 1000);
}

TEST(JudgeTest, Judge_LargeJob_IsJudged) {
  std::vector<Rank> ranks;
  for (int32_t rank = 0; rank < 4000; ++rank) {
    RankBuilder builder(rank);
    for (int i = 0; i < 20; ++i) builder.Done();
    ranks.push_back(rank == 1234 ? builder : builder.Wait());
  }
  const JobEvidence job = JobOf(ranks);
  const auto verdict = Judge(job);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->odd, Ranks{1234});
  EXPECT_EQ(verdict->waiting.size(), 3999u);
}

}  // namespace
}  // namespace ddprun::launcher
