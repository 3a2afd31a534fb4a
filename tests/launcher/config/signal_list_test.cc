#include "launcher/config/signal_list.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>

#include "base/signal_name.h"

namespace ddprun::launcher {
namespace {

TEST(SignalName, EverySignalOfTheSystem_HasItsName) {
  for (int signal = 1; signal < 32; ++signal) {
    ASSERT_NE(sigabbrev_np(signal), nullptr);
    // glibc says POLL for SIGIO.
    const std::string expected = signal == SIGIO ? "SIGIO" : std::string("SIG") + sigabbrev_np(signal);
    EXPECT_EQ(SignalName(signal), expected);
    EXPECT_EQ(SignalNumber(SignalName(signal)), signal);
  }
}

TEST(SignalName, OtherNumbers_AreNamedToo) {
  EXPECT_EQ(SignalName(SIGRTMIN), "SIGRTMIN");
  EXPECT_EQ(SignalName(SIGRTMIN + 3), "SIGRTMIN+3");
  EXPECT_EQ(SignalName(0), "signal 0");
  EXPECT_EQ(SignalName(200), "signal 200");
}

TEST(SignalNumber, NameWithAndWithoutSig_IsKnown) {
  EXPECT_EQ(SignalNumber("SIGTERM"), SIGTERM);
  EXPECT_EQ(SignalNumber("TERM"), SIGTERM);
  EXPECT_EQ(SignalNumber("term"), std::nullopt);
  EXPECT_EQ(SignalNumber(""), std::nullopt);
  EXPECT_EQ(SignalNumber("SIG"), std::nullopt);
}

TEST(ParseSignals, Names_AreRead) {
  EXPECT_EQ(*ParseSignals("SIGTERM"), std::vector<int>({SIGTERM}));
  EXPECT_EQ(*ParseSignals("SIGTERM, USR1,SIGTERM"), std::vector<int>({SIGTERM, SIGUSR1}));
  EXPECT_EQ(SignalNames(*ParseSignals("SIGTERM,USR1")), "SIGTERM,SIGUSR1");
}

TEST(ParseSignals, AnythingElse_IsRefused) {
  for (const char* bad : {"", ",", "SIGTERM,", "15", "SIGFOO", "SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGABRT"}) {
    EXPECT_FALSE(ParseSignals(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace ddprun::launcher
