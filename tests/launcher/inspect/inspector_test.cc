#include "launcher/inspect/inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Inspection;

class InspectorTest : public ::testing::Test {
 protected:
  InspectorTest() {
    Inspector::Events events;
    events.process_of = [](int32_t local_rank) { return local_rank == 0 ? getpid() : 0; };
    events.count_collectives = [this](int32_t, const auto& on_count) {
      loop_->Post([this, on_count] { on_count(++counted_); });
      return size_t{1};
    };
    events.send = [this](const Inspection& inspection) {
      sent_.push_back(inspection);
      if (inspection.last()) loop_->Quit();
    };
    inspector_ = std::make_unique<Inspector>(loop_.get(), 2, std::move(events));
  }

  // Asks about both workers, as ranks 4 and 5. `question`: the rest, in protobuf's text format.
  void Ask(const std::string& question) {
    sent_.clear();
    inspector_->Inspect(TextProto<rendezvous::Inspect>(absl::StrCat("id: 3 round: 8 ranks: [4, 5] ", question)),
                        {0, 1});
  }
  std::string Texts() const {
    std::string texts;
    for (const Inspection& inspection : sent_) {
      for (const rendezvous::RankOutput& output : inspection.outputs()) {
        absl::StrAppend(&texts, output.rank(), output.is_stderr() ? " err: " : " out: ", output.text(), ";");
      }
    }
    return texts;
  }

  const testing::TempDir dir_;
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  int64_t counted_ = 0;
  std::vector<Inspection> sent_;
  std::unique_ptr<Inspector> inspector_;
};

TEST_F(InspectorTest, Output_Asked_EndOfStreamsAtOnceThenWhatFollows) {
  std::ofstream log(dir_.File("log"));
  log << "one\n" << std::flush;
  inspector_->OnOutput(0, {}, {dir_.File("log"), 0});
  Ask("what: WHAT_OUTPUT");
  loop_->Run();
  EXPECT_EQ(Texts(), "4 out: ;4 err: one\n;") << "stdout is not seen; worker 1 was not started";
  EXPECT_EQ(sent_.back().id(), 3u);
  EXPECT_EQ(sent_.back().round(), 8u);
  const std::string position = absl::StrCat(
      "what: WHAT_OUTPUT after { rank: 4 is_stderr: true end: ", sent_.back().outputs(1).end(), " } after { rank: 4 }");
  const SteadyTime asked = SteadyNow();
  Ask(position);
  log << "two\n" << std::flush;
  loop_->Run();
  EXPECT_EQ(Texts(), "4 err: two\n;");
  EXPECT_GE(SteadyNow() - asked, absl::Seconds(1)) << "the operator always has a question here";
  Ask(position);
  log << "three\n" << std::flush;
  inspector_->AnswerNow();
  EXPECT_EQ(Texts(), "4 err: two\nthree\n;");
  sent_.clear();
  inspector_->AnswerNow();
  EXPECT_TRUE(sent_.empty());
}

TEST_F(InspectorTest, Output_Much_IsSentInSeveralMessages) {
  std::ofstream(dir_.File("log")) << std::string(200'000, 'x');
  inspector_->OnOutput(0, {dir_.File("log"), 0}, {});
  Ask("what: WHAT_OUTPUT");
  loop_->Run();
  EXPECT_GE(sent_.size(), 4u);
  for (const Inspection& inspection : sent_) EXPECT_LT(inspection.ByteSizeLong(), 100'000u);
}

TEST_F(InspectorTest, Usage_Asked_RatesOfRunningWorkers) {
  Ask("what: WHAT_USAGE");
  loop_->Run();
  ASSERT_EQ(sent_.size(), 1u);
  ASSERT_EQ(sent_[0].usages_size(), 2);
  const rendezvous::RankUsage &running = sent_[0].usages(0), &ended = sent_[0].usages(1);
  EXPECT_EQ(running.rank(), 4);
  EXPECT_EQ(running.pid(), getpid());
  EXPECT_GT(running.memory_bytes(), 1 << 20);
  EXPECT_GT(running.collectives(), 0);
  EXPECT_EQ(ended.rank(), 5);
  EXPECT_EQ(ended.pid(), 0);
}

TEST_F(InspectorTest, Inspect_UnknownKindOrNoRank_AnswersWithNothing) {
  inspector_->Inspect(TextProto<rendezvous::Inspect>("id: 3 round: 8 what: WHAT_USAGE"), {});
  rendezvous::Inspect newer = TextProto<rendezvous::Inspect>("id: 4 round: 8 ranks: 4");
  newer.set_what(static_cast<rendezvous::Inspect::What>(77));
  inspector_->Inspect(newer, {0});
  ASSERT_EQ(sent_.size(), 2u);
  for (const Inspection& inspection : sent_) EXPECT_TRUE(inspection.last() && inspection.usages().empty());
}

TEST(UsageBetweenTest, CountersAndGpu_AreOptional) {
  UsageSample before, after;
  after.worker = 7;
  after.activity.at = before.activity.at + absl::Seconds(2);
  after.activity.processes[7].cpu = absl::Seconds(3);
  after.activity.processes[7].io = 10;
  after.activity.sockets[1] = 8;
  after.memory_bytes = 5;
  EXPECT_EQ(UsageBetween(3, before, after),
            TextProto<rendezvous::RankUsage>("rank: 3 pid: 7 cpu: 1.5 memory_bytes: 5 io: 5 net: 4"));
  before.collectives = 10;
  after.collectives = 14;
  after.gpu = {0.5, 9};
  const rendezvous::RankUsage all = UsageBetween(3, before, after);
  EXPECT_EQ(all.collectives(), 2);
  EXPECT_EQ(all.gpu(), 0.5);
  EXPECT_EQ(all.gpu_memory_bytes(), 9);
  after.collectives = 1;
  after.gpu->busy.reset();
  EXPECT_FALSE(UsageBetween(3, before, after).has_collectives()) << "another process answered";
  EXPECT_FALSE(UsageBetween(3, before, after).has_gpu());
}

}  // namespace
}  // namespace ddprun::launcher
