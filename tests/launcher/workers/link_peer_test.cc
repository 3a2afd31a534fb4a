// Sections are those of docs/worker_protocol.md.
#include "launcher/workers/link_peer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using worker_contract::EncodeMessage;
using worker_contract::LinkHello;
using worker_contract::LinkProgress;
using worker_contract::WorkerLinkMessage;

const SteadyTime kStart = SteadyTime() + absl::Seconds(100);

std::string Hello(int rank) { return EncodeMessage(WorkerLinkMessage(LinkHello{1, 0, rank, 77, {"progress"}})); }
std::string Progress(int64_t step) { return EncodeMessage(WorkerLinkMessage(LinkProgress{.step = step})); }

class LinkPeerTest : public ::testing::Test {
 protected:
  std::string Error(absl::string_view bytes, SteadyTime now = kStart) {
    return std::string(peer_.OnBytes(bytes, now).message());
  }

  LinkPeer peer_{5, kStart};
};

TEST_F(LinkPeerTest, Progress_LastReport_IsKeptWithItsTime) {
  EXPECT_EQ(Error(Hello(5) + "{\"type\":\"resting\",\"step\":3}\n"), "") << "section 1: unknown types are ignored";
  EXPECT_EQ(peer_.hello()->pid, 77);
  EXPECT_FALSE(peer_.progress());
  EXPECT_EQ(Error(Progress(1) + Progress(2).substr(0, 5)), "");
  EXPECT_EQ(peer_.progress()->progress.step, 1);
  EXPECT_EQ(Error(Progress(2).substr(5), kStart + absl::Seconds(1)), "");
  EXPECT_EQ(peer_.progress()->progress.step, 2);
  EXPECT_TRUE(peer_.progress()->at == kStart + absl::Seconds(1));
}

TEST_F(LinkPeerTest, Section2_4_FirstLineNotAHelloOfTheRank_Closes) {
  EXPECT_EQ(Error(Progress(1)), "its first line is not a hello");
  EXPECT_FALSE(peer_.progress());
  EXPECT_EQ(Error(Hello(4)), "it says that it is rank 4, not 5");
  EXPECT_EQ(Error(R"({"type":"later"})"
                  "\n"),
            "its first line is not a hello");
  EXPECT_EQ(Error(Hello(5)), "");
  EXPECT_EQ(Error(Hello(4)), "it says that it is rank 4, not 5");
}

TEST_F(LinkPeerTest, Section1_BadOrLongLine_EarlierLinesCount) {
  EXPECT_EQ(Error(absl::StrCat(Hello(5), Progress(8), "{}\n", Progress(9))),
            "a line has no \"type\", which must be a string");
  EXPECT_EQ(peer_.progress()->progress.step, 8);

  LinkPeer other(5, kStart);
  const std::string bytes = absl::StrCat(Hello(5), Progress(8), std::string(5000, 'x'));
  EXPECT_THAT(std::string(other.OnBytes(bytes, kStart).message()), HasSubstr("longer than 4096 bytes"));
  EXPECT_EQ(other.progress()->progress.step, 8);
}

TEST_F(LinkPeerTest, Section2_4_RateLimit_IsAThousandLinesPerSecond) {
  EXPECT_EQ(Error(Hello(5)), "");
  SteadyTime now = kStart;
  for (int i = 0; i < 60 * 1000; ++i) ASSERT_EQ(Error(Progress(i), now = now + absl::Milliseconds(1)), "") << i;
  int allowed = 0;
  std::string error;
  while (error.empty() && allowed < 60 * 2000) {
    error = Error(Progress(allowed++), now = now + absl::Microseconds(500));
  }
  EXPECT_EQ(error, "it sends more than 1000 lines a second");
  EXPECT_NEAR(allowed, 20 * 1000, 5) << "ten seconds at twice the rate";
}

TEST_F(LinkPeerTest, Finished_KeepsWhatWasReportedOfTheStep) {
  const auto progress = [](int64_t step, const char* phase) {
    return EncodeMessage(WorkerLinkMessage(LinkProgress{.step = step, .phase = phase}));
  };
  EXPECT_EQ(Error(absl::StrCat(Hello(5), progress(8, "backward"), progress(8, "finished"))), "");
  EXPECT_EQ(peer_.progress()->progress.phase, "backward");
  EXPECT_EQ(peer_.TakeReports().back().progress.phase, "finished");
  EXPECT_EQ(Error(progress(9, "finished")), "");
  EXPECT_EQ(peer_.progress()->progress.phase, "finished");
}

TEST(DescribeProgress, AllFields_AreShown) {
  const auto text = [](LinkProgress progress) {
    return DescribeProgress({std::move(progress), kStart}, kStart + absl::Milliseconds(3200));
  };
  EXPECT_EQ(text({.step = 120}), "last reported step 120, 3.2s before it ended");
  EXPECT_EQ(text({120, 7680, "backward", 2.3125}),
            "last reported step 120, 7680 samples, phase backward, loss 2.3125, 3.2s before it ended");
  EXPECT_EQ(text({.step = 0, .phase = "a\x1b[31m\nb", .loss = std::nan("")}),
            "last reported step 0, phase a?[31m b, loss nan, 3.2s before it ended");
}

}  // namespace
}  // namespace ddprun::launcher
