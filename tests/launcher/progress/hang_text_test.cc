#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "launcher/progress/progress_watch.h"

namespace ddprun::launcher {
namespace {

WorkerStanding At(int32_t rank, int64_t step, const std::string& phase, absl::Duration stood = absl::Seconds(5)) {
  return {rank, step, phase, stood, absl::Milliseconds(300), absl::Seconds(1)};
}

void ExpectParts(const std::string& text, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_TRUE(absl::StrContains(text, part)) << part << " is missing in: " << text;
}

TEST(HangTextTest, HangText_OneRankBehind_NamesItAndTheOthers) {
  effect::Hang hang;
  hang.behind = {At(3, 120, "forward", absl::Seconds(4.2))};
  hang.waiting = {At(0, 120, "backward"), At(1, 120, "backward"), At(2, 121, "")};
  hang.silent = {4};
  hang.ended = {5, 6};
  hang.finished = {7};
  EXPECT_EQ(
      HangText(hang, 8),
      "rank 11 has been in phase forward of step 120 for 4.2s (usually 300ms, limit 1.0s); ranks 8-9 wait in phase "
      "backward of step 120; rank 10 waits in step 121; rank 12 has not reported any progress; rank 15 has "
      "finished the training; ranks 13-14 have ended");
}

TEST(HangTextTest, HangText_AllRanksOfTheNode_NamesAll) {
  effect::Hang hang;
  hang.behind = {At(0, 7, "backward"), At(1, 7, "backward", absl::Seconds(3))};
  ExpectParts(HangText(hang, 0), {"ranks 0-1", "phase backward of step 7", "for 3.0s", ": all ranks of this node"});
  hang.elsewhere = true;
  ExpectParts(HangText(hang, 0), {"ranks 0-1", "phase backward of step 7", "for 3.0s", "for another node"});
}

TEST(HangTextTest, HangText_UnusualPositions_AreNamed) {
  EXPECT_EQ(StandingText(At(0, 1, "a\nb")).find('\n'), std::string::npos) << "no control characters of a phase";
  WorkerStanding standing = At(0, 0, "forward");
  standing.usual = absl::ZeroDuration();
  EXPECT_EQ(HangFailureText(standing),
            "hung in phase forward of step 0 for 5.0s (limit 1.0s); killed (--on-hang=restart)");
}

TEST(HangTextTest, NotExitedText_EveryCase_IsOneLine) {
  effect::NotExited not_exited{1, absl::Minutes(5), absl::Minutes(10)};
  ExpectParts(NotExitedText(not_exited, 2, 77), {"rank 3 (pid 77)", "for 5m0s", "killed after 10m0s if it is idle"});
  not_exited.stood = absl::Minutes(10);
  not_exited.kill = true;
  ExpectParts(NotExitedText(not_exited, 2, 77), {"rank 3 (pid 77)", "for 10m0s: killed", "counts as finished"});
  const std::string finished = NotExitedText({1, absl::Minutes(5), absl::InfiniteDuration()}, 2, 77);
  ExpectParts(finished, {"rank 3 (pid 77)", "finished its training", "for 5m0s"});
  EXPECT_FALSE(absl::StrContains(finished, "killed")) << finished;
}

TEST(HangTextTest, HangEndedAndStragglers_AreOneLineEach) {
  ExpectParts(HangEndedText({At(1, 9, "forward")}, 4), {"rank 5 continued", "5.0s", "phase forward of step 9"});
  ExpectParts(StragglersText({{{1, absl::Milliseconds(450), absl::Milliseconds(300)}}}, 4),
              {"rank 5 is slow", "450ms", "1.5 times", "300ms"});
}

}  // namespace
}  // namespace ddprun::launcher
