#include "launcher/config/flag_value.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/process.h"
#include "launcher/config/visible_devices.h"

namespace ddprun::launcher {
namespace {

TEST(ParseInteger, OutOfRange_ErrorNamesTheRange) {
  EXPECT_EQ(*ParseInteger("0", 0, 10), 0);
  EXPECT_EQ(*ParseInteger("10", 0, 10), 10);
  EXPECT_EQ(*ParseInteger("-3", -5, 5), -3);
  for (const char* bad : {"", " 1", "1 ", "11", "-1", "x", "1x", "0x1", "1.0", "99999999999999999999", "1\n"}) {
    const absl::StatusOr<int64_t> number = ParseInteger(bad, 0, 10);
    ASSERT_FALSE(number.ok()) << bad;
    EXPECT_NE(number.status().message().find("is not a whole number from 0 to 10"), absl::string_view::npos);
  }
}

TEST(ParseSeconds, Numbers_AreRead) {
  const std::pair<const char*, absl::Duration> kCases[] = {{"0", absl::ZeroDuration()},
                                                           {"30", absl::Seconds(30)},
                                                           {"0.5", absl::Milliseconds(500)},
                                                           {".25", absl::Milliseconds(250)},
                                                           {"0.33333333333", absl::Nanoseconds(333'333'333)}};
  for (const auto& [text, seconds] : kCases) EXPECT_EQ(*ParseSeconds(text), seconds) << text;
  for (const char* bad : {"", ".", "1e3", "inf", "nan", "10s", "1,5", " 1", "0x10", "1.2.3", "--1"}) {
    EXPECT_FALSE(ParseSeconds(bad).ok()) << bad;
  }
  EXPECT_NE(ParseSeconds("-1").status().message().find("negative"), absl::string_view::npos);
  EXPECT_NE(ParseSeconds("1000000000000").status().message().find("too long"), absl::string_view::npos);
  for (const char* zero : {"0", "0.0"}) EXPECT_FALSE(ParsePositiveSeconds(zero).ok()) << zero;
  EXPECT_EQ(*ParsePositiveSeconds("0.001"), absl::Milliseconds(1));
}

TEST(ParseBool, Words_AreRead) {
  for (const char* yes : {"1", "true", "True", "TRUE", "t", "yes", "y"}) EXPECT_TRUE(*ParseBool(yes)) << yes;
  for (const char* no : {"0", "false", "False", "f", "no", "N"}) EXPECT_FALSE(*ParseBool(no)) << no;
  for (const char* bad : {"", "2", "on", "truth", " 1"}) EXPECT_FALSE(ParseBool(bad).ok()) << bad;
}

TEST(ParseName, OddNames_AreErrors) {
  EXPECT_EQ(*ParseName("job 7/ü"), "job 7/ü");
  EXPECT_EQ(*ParseName(std::string(256, 'x')), std::string(256, 'x'));
  for (const std::string& bad : {std::string(), std::string(257, 'x'), std::string("a\nb"), std::string("a\xff"),
                                 std::string(" a"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(ParseName(bad).ok()) << bad;
  }
}

TEST(SignalName, EverySignalOfTheSystem_HasItsName) {
  for (int signal = 1; signal < 32; ++signal) {
    ASSERT_NE(sigabbrev_np(signal), nullptr);
    // glibc says POLL for SIGIO.
    const std::string expected = signal == SIGIO ? "SIGIO" : std::string("SIG") + sigabbrev_np(signal);
    EXPECT_EQ(SignalName(signal), expected);
    // ParseSignals knows them all: it reads or names each.
    const absl::StatusOr<std::vector<int>> listed = ParseSignals(expected);
    EXPECT_EQ(listed.ok()
                  ? SignalNames(*listed)
                  : std::string(absl::StripSuffix(listed.status().message(), " can't be handled: leave it out")),
              expected);
  }
  EXPECT_EQ(SignalName(SIGRTMIN), "SIGRTMIN");
  EXPECT_EQ(SignalName(SIGRTMIN + 3), "SIGRTMIN+3");
  EXPECT_EQ(SignalName(0), "signal 0");
  EXPECT_EQ(SignalName(200), "signal 200");
}

TEST(ParseSignals, Names_AreRead) {
  EXPECT_EQ(*ParseSignals("SIGTERM, USR1,SIGTERM"), std::vector<int>({SIGTERM, SIGUSR1}));
  EXPECT_EQ(SignalNames(*ParseSignals("SIGTERM,USR1")), "SIGTERM,SIGUSR1");
  for (const char* bad :
       {"", ",", "SIGTERM,", "15", "term", "SIG", "SIGFOO", "SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGABRT"}) {
    EXPECT_FALSE(ParseSignals(bad).ok()) << bad;
  }
}

TEST(ParseNodeCount, NumberAndRange_AreRead) {
  EXPECT_EQ(*ParseNodeCount("1"), (NodeCount{1, 1}));
  EXPECT_EQ(*ParseNodeCount("1:4"), (NodeCount{1, 4}));
  EXPECT_EQ(*ParseNodeCount("3:3"), (NodeCount{3, 3}));
  EXPECT_EQ(*ParseNodeCount("100000"), (NodeCount{100000, 100000}));
  for (const char* bad :
       {"", "0", "-1", "x", "1:", ":2", "0:2", "4:1", "1:2:3", "1-2", "1.5", "1 :2", "1000001", ":"}) {
    EXPECT_FALSE(ParseNodeCount(bad).ok()) << bad;
  }
}

TEST(ParseProcessCount, NumberAndWords_AreRead) {
  EXPECT_EQ(*ParseProcessCount("8"), (ProcessCount{ProcessCount::Kind::kNumber, 8}));
  using Kind = ProcessCount::Kind;
  const std::pair<const char*, Kind> kWords[] = {{"cpu", Kind::kCpu}, {"auto", Kind::kAuto}};
  for (const auto& [word, kind] : kWords) EXPECT_EQ(ParseProcessCount(word)->kind, kind) << word;
  for (const Vendor& vendor : kVendors) EXPECT_EQ(ParseProcessCount(vendor.word)->device, vendor.word);
  for (const char* bad : {"", "0", "-2", "mps", "GPU", "8.0", "10001", "cpu "}) {
    EXPECT_FALSE(ParseProcessCount(bad).ok()) << bad;
  }
}

using Parts = std::vector<PortRange>;

TEST(ParsePortRange, BothForms_AreRead) {
  EXPECT_EQ(*ParsePortRange("20000-20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(*ParsePortRange("20000:20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(*ParsePortRange("1-65535"), PortRange());
  EXPECT_EQ(*ParsePortRange("7-7"), (PortRange{7, 7}));
  EXPECT_EQ((PortRange{20000, 20100}.ToString()), "20000-20100");
  const PortRange range{10, 12};
  EXPECT_TRUE(range.Has(10) && range.Has(12));
  EXPECT_FALSE(range.Has(9) || range.Has(13));
}

TEST(ParsePortRange, OtherText_IsAnErrorThatShowsTheForm) {
  for (const char* text : {"", "20000", "-", "1-", "-2", "1-2-3", "a-b", "0-5", "1-65536", "1 - 2", "1,2", "--1"}) {
    const absl::Status status = ParsePortRange(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "FIRST-LAST")) << status;
  }
  EXPECT_TRUE(absl::StrContains(ParsePortRange("9-8").status().message(), "smaller port first"));
}

TEST(StorePortsTest, FirstStore_ExcludesTheReservedPort) {
  EXPECT_EQ(StorePorts({10, 19}, 0, 0), (Parts{{10, 19}}));
  EXPECT_EQ(StorePorts({10, 19}, 10, 0), (Parts{{11, 19}}));
  EXPECT_EQ(StorePorts({10, 19}, 19, 0), (Parts{{10, 18}}));
  EXPECT_EQ(StorePorts({10, 19}, 14, 0), (Parts{{10, 13}, {15, 19}}));
  EXPECT_EQ(StorePorts({10, 10}, 10, 0), Parts{});
}

TEST(StorePortsTest, LaterStore_StartsAboveTheLastPort) {
  EXPECT_EQ(StorePorts({10, 19}, 0, 12), (Parts{{13, 19}, {10, 12}}));
  EXPECT_EQ(StorePorts({10, 19}, 10, 12), (Parts{{13, 19}, {11, 12}}));
  EXPECT_EQ(StorePorts({10, 19}, 13, 12), (Parts{{14, 19}, {10, 12}}));
  EXPECT_EQ(StorePorts({10, 19}, 0, 19), (Parts{{10, 19}})) << "again from the start";
  EXPECT_EQ(StorePorts({10, 11}, 10, 11), (Parts{{11, 11}})) << "the only one";
}

TEST(ParseHangPolicy, ActionAloneOrWithSeconds_IsRead) {
  EXPECT_EQ(*ParseHangPolicy("report"), HangPolicy());
  EXPECT_EQ(*ParseHangPolicy("restart"), HangPolicy{.restart = true});
  EXPECT_EQ(*ParseHangPolicy("report:90"), HangPolicy{.fixed_limit = absl::Seconds(90)});
  EXPECT_EQ(*ParseHangPolicy("restart:0.5"), (HangPolicy{.fixed_limit = absl::Milliseconds(500), .restart = true}));
  for (const char* none : {"report:0", "restart:0.0"}) EXPECT_FALSE(ParseHangPolicy(none)->watch) << none;
  for (const char* bad : {"", "60", ":60", "log", "restart:", "restart:-1", "restart:1m", "report:1:2", "Report"}) {
    EXPECT_FALSE(ParseHangPolicy(bad).ok()) << bad;
  }
}

TEST(HangPolicyText, EveryPolicy_HasAText) {
  EXPECT_EQ(HangPolicyText({}), "report");
  EXPECT_EQ(HangPolicyText(*ParseHangPolicy("restart:90")), "restart, limit 1m30s");
  EXPECT_EQ(HangPolicyText(*ParseHangPolicy("restart:0")), "none");
}

}  // namespace
}  // namespace ddprun::launcher
