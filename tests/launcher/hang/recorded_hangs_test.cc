#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "launcher/hang/judge.h"
#include "tests/testing/text_proto.h"

// Hangs of real scripts with 4 ranks under PyTorch 2.11 and Gloo (evidence/*.txtpb): a bug in one rank at one step.
namespace ddprun::launcher {
namespace {

using Kind = Verdict::Kind;

JobEvidence Recorded(const std::string& name) {
  std::ifstream stream("tests/launcher/hang/evidence/" + name + ".txtpb");
  std::stringstream content;
  content << stream.rdbuf();
  EXPECT_FALSE(content.str().empty()) << name;
  return {4, 1, {TextProto<hang::v1::NodeEvidence>(content.str())}};
}

struct Case {
  std::string name;
  Kind kind;
  std::vector<int32_t> odd;
  RankState::Activity activity;
  std::string first_line;
};

class RecordedHangsTest : public testing::TestWithParam<Case> {};

TEST_P(RecordedHangsTest, Judge_RecordedHang_NamesTheRank) {
  const JobEvidence job = Recorded(GetParam().name);
  const auto verdict = Judge(job);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, GetParam().kind);
  EXPECT_EQ(verdict->odd, GetParam().odd);
  EXPECT_EQ(verdict->activity, GetParam().activity);
  const std::string text = HangText(*verdict, job, absl::Seconds(34.9));
  EXPECT_EQ(text.substr(0, text.find('\n')), GetParam().first_line) << text;
  EXPECT_TRUE(absl::StrContains(text, "\n  rank ")) << text;
  EXPECT_TRUE(absl::StrContains(text, "File \"/home/user/train.py\", line ")) << text;
  EXPECT_TRUE(absl::StrContains(text, "\n  the operation's timeout ends the job in 29m")) << text;
  EXPECT_FALSE(absl::StrContains(text, "node-a")) << "a host in a job of one node: " << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, RecordedHangsTest,
    testing::Values(
        Case{"gil_ddp",
             Kind::kBehind,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 wait in all_reduce #46 (Float[85002]) of the default group for rank 1, "
             "which waits for Python's lock (GIL) at train.py:83 in hold_gil; the thread that holds it is at "
             "train.py:83 in <lambda>"},
        Case{"evaluate_ddp",
             Kind::kBehind,
             {0},
             RankState::Activity::kBusy,
             "no progress for 34s: ranks 1-3 wait in barrier #49 of the default group for rank 0, which is busy (40% "
             "of a processor) at train.py:168 in evaluate"},
        Case{"kernel_ddp",
             Kind::kBehind,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 wait in all_reduce #46 (Float[85002]) of the default group for rank 1, "
             "which is stuck in the kernel (percpu_rwsem_wait, /mnt/frozen/file) at train.py:129 in before_forward"},
        Case{"loader_ddp",
             Kind::kBehind,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 wait in all_reduce #46 (Float[85002]) of the default group for rank 1, "
             "which waits for input from a pipe at train.py:189 in main; its child 20440 waits for another thread at "
             "train.py:31 in __getitem__"},
        Case{"store_ddp",
             Kind::kBehind,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 wait in all_reduce #46 (Float[85002]) of the default group for rank 1, "
             "which waits for a key of the store at train.py:123 in before_forward"},
        Case{"thread_ddp",
             Kind::kBehind,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 wait in all_reduce #46 (Float[85002]) of the default group for rank 1, "
             "which waits for another thread at train.py:133 in before_forward"},
        Case{"shape_ddp",
             Kind::kDiffer,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 entered all_reduce #47 (Float[1]) of the default group, but rank 1 "
             "entered all_reduce #47 (Float[2]) instead at train.py:150 in metrics"},
        Case{"skip_ddp",
             Kind::kDiffer,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 entered all_reduce #47 (Float[1]) of the default group, but rank 1 "
             "entered barrier #47 instead at train.py:160 in save"},
        Case{"skip_fsdp",
             Kind::kDiffer,
             {1},
             RankState::Activity::kIdle,
             "no progress for 34s: ranks 0, 2-3 entered all_reduce #210 (Float[1]) of the default group, but rank 1 "
             "entered barrier #210 instead at train.py:162 in save"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ddprun::launcher
