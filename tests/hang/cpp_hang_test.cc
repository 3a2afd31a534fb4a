// Hangs of a C++ trainer on the worker runtime, with a real launcher and Gloo: each names the right rank, with the
// function in which it is and what it waits for. `trainer.cc` has the bugs.
#include <map>
#include <string>
#include <vector>

#include "tests/hang/hang_case.h"

namespace ddprun::testing {
namespace {

std::vector<std::string> Flags() {
  return HangFlags({"--standalone", "--nproc-per-node=3"}, {"--no-python", "tests/hang/trainer"});
}

class CppHangTest : public ::testing::TestWithParam<Hang> {};

TEST_P(CppHangTest, Hang_NamesRankFunctionAndReason) {
  const TempDir folder;
  ExpectNamed(GetParam(), Flags(), {{"FOLDER", folder.path()}});
}

INSTANTIATE_TEST_SUITE_P(
    All, CppHangTest,
    ::testing::Values(Hang{"sleep", {"for rank 1, which sleeps"}, {}, "sleeps in hang::Sleep() (trainer+0x"},
                      Hang{
                          "lock", {"for rank 1, which waits for "}, {}, "waits for a lock in hang::Lock() (trainer+0x"},
                      Hang{"fifo",
                           {"for rank 1, which opens the FIFO ", "/fifo, which no process opens at the other end"},
                           {},
                           " in hang::Fifo() (trainer+0x"},
                      Hang{"child",
                           {"for rank 1, which waits for a child process", "sleep 1000000"},
                           {},
                           " in hang::Child() (trainer+0x"},
                      Hang{"spin", {"for rank 1, which is busy"}, {{"TIMEOUT", "30"}}, " in hang::Spin() (trainer+0x"},
                      Hang{"stop", {"for rank 1, which is stopped (SIGSTOP)"}},
                      Hang{"other", {"rank 1 entered broadcast", " instead"}},
                      Hang{"early", {"rank 1 entered barrier", " instead"}}),
    NameOf);

TEST(CppHealthyTest, Trainer_ThatDoesNotHang_IsNotReported) {
  Finished launcher(0, Flags(), {{"STEPS", "600"}});
  EXPECT_THAT(launcher.Err(), Not(HasSubstr(kHangWords)));
}

}  // namespace
}  // namespace ddprun::testing
