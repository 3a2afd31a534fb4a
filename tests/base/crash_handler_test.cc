#include "base/crash_handler.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <stdexcept>

namespace ddprun {
namespace {

TEST(CrashReportDeathTest, FatalSignal_IsNamedAndEndsTheProgram) {
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE}) {
    EXPECT_EXIT(
        {
          InstallCrashReport("prog");
          raise(number);
        },
        ::testing::KilledBySignal(number), "prog: crashed with SIG[A-Z]+; this is a bug in prog, please report it");
  }
}

void Throw() { throw std::runtime_error("the reason"); }

TEST(CrashReportDeathTest, UncaughtException_ItsTextIsLogged) {
  EXPECT_EXIT(
      {
        InstallCrashReport("prog");
        []() noexcept { Throw(); }();
      },
      ::testing::KilledBySignal(SIGABRT), "internal error: the reason");
}

}  // namespace
}  // namespace ddprun
