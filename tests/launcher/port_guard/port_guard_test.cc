// The library that restricts workers to --port-range, preloaded into a program that listens in all ways.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/hosts/hosts.h"

namespace ddprun::testing {
namespace {

// Runs on a separate host with all ports free.
class PortGuardTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_HOSTS(); }

  // Output of the program with this range.
  std::vector<int> Run(const std::string& range, std::vector<std::string> words) {
    Hosts host(1);
    words.insert(words.begin(), std::filesystem::absolute("tests/launcher/port_guard/listen_ports").string());
    const std::string guard = std::filesystem::absolute("launcher/libddprun_ports.so").string();
    words.insert(words.begin(), {"/usr/bin/env", absl::StrCat("LD_PRELOAD=", guard)});
    Process program(host.On(1, words), {{"DDPRUN_PORT_RANGE", range}});
    EXPECT_EQ(program.Wait(), 0) << program.Err();
    err_ = program.Err();
    EXPECT_EQ(program.Out().find("errno"), std::string::npos) << program.Out();
    std::vector<int> ports;
    for (const absl::string_view line : absl::StrSplit(program.Out(), '\n', absl::SkipEmpty())) {
      int port = 0;
      EXPECT_TRUE(absl::SimpleAtoi(line, &port)) << line;
      ports.push_back(port);
    }
    return ports;
  }

  static void ExpectDistinctIn(const std::vector<int>& ports, int first, int last) {
    EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), ports.size());
    for (const int port : ports) EXPECT_TRUE(first <= port && port <= last) << port;
  }

  std::string err_;
};

TEST_F(PortGuardTest, TcpWithoutAPort_GetsOneOfTheRange) {
  const std::vector<int> ports = Run("500-509", {"v4", "v6", "reuse", "unbound", "unbound", "reuse"});
  EXPECT_EQ(ports.size(), 6u);
  // ::1 and 127.0.0.1 may have the same port.
  for (const int port : ports) EXPECT_TRUE(500 <= port && port <= 509) << port;
}

TEST_F(PortGuardTest, ServersPort_IsSkipped) {
  const std::vector<int> ports = Run("500-504 except 502", {"v4", "v4", "v4", "v4", "v4"});
  ASSERT_EQ(ports.size(), 5u);
  EXPECT_EQ(std::set<int>(ports.begin(), ports.end()), (std::set<int>{-EADDRINUSE, 500, 501, 503, 504}));
  EXPECT_EQ(ports.back(), -EADDRINUSE);
}

TEST_F(PortGuardTest, OtherBinds_AreUnchanged) {
  const std::vector<int> got = Run("500-509", {"700", "700", "udp", "unix", "short", "client"});
  ASSERT_EQ(got.size(), 6u);
  EXPECT_EQ(got[0], 700);
  EXPECT_EQ(got[1], -EADDRINUSE);
  EXPECT_GT(got[2], 1023) << "UDP: the kernel's choice";
  EXPECT_EQ(got[3], 0);
  EXPECT_EQ(got[4], -EINVAL);
  EXPECT_EQ(got[5], 0) << "no port yet";
}

TEST_F(PortGuardTest, RangeExhausted_IsAnErrorAndOneLine) {
  const std::vector<int> ports = Run("500-502", {"reuse", "reuse", "unbound", "v4", "reuse", "unbound"});
  ASSERT_EQ(ports.size(), 6u);
  ExpectDistinctIn({ports.begin(), ports.begin() + 3}, 500, 502);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(ports[i], -EADDRINUSE);
  EXPECT_EQ(err_.find("ddprun: process "), 0u) << err_;
  EXPECT_NE(err_.find("no free port in 500-502; widen --port-range\n"), std::string::npos) << err_;
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
}

TEST_F(PortGuardTest, ThreadsAndProcesses_NeverShareAPort) {
  std::vector<int> ports = Run("500-531", {"threads"});
  EXPECT_EQ(ports.size(), 32u);
  ExpectDistinctIn(ports, 500, 531);
  ports = Run("500-515", {"fork"});
  EXPECT_EQ(ports.size(), 16u);
  ExpectDistinctIn(ports, 500, 515);
}

TEST_F(PortGuardTest, NoRangeOrInvalid_ChangesNothing) {
  for (const char* range : {"", "x", "509-500", "0-9", "500", "70000-70001"}) {
    for (const int port : Run(range, {"v4", "unbound", "v6"})) EXPECT_GT(port, 1023) << range;
  }
}

// A launcher in a separate folder, as it may be copied to a node.
class PortGuardFileTest : public ::testing::Test {
 protected:
  static constexpr char kGuard[] = "launcher/libddprun_ports.so";

  static void Copy(const std::string& from, const std::string& to) {
    std::filesystem::create_directories(std::filesystem::path(to).parent_path());
    std::filesystem::copy_file(std::filesystem::canonical(from), to);
  }

  static int Run(const std::string& launcher, std::string* out, std::string* err) {
    Process process({launcher, "--standalone", "--port-range=21000-21009", "--no-python", "printenv", "LD_PRELOAD"});
    const int code = process.Wait();
    *out = process.Out();
    *err = process.Err();
    return code;
  }

  TempDir dir_;
  std::string out_, err_;
};

TEST_F(PortGuardFileTest, BesideTheLauncherOrInLib_IsFound) {
  Copy("launcher/ddprun", dir_.File("bin/ddprun"));
  Copy(kGuard, dir_.File("lib/libddprun_ports.so"));
  EXPECT_EQ(Run(dir_.File("bin/ddprun"), &out_, &err_), 0) << err_;
  EXPECT_EQ(out_, dir_.File("lib/libddprun_ports.so\n"));
  Copy(kGuard, dir_.File("bin/libddprun_ports.so"));
  EXPECT_EQ(Run(dir_.File("bin/ddprun"), &out_, &err_), 0) << err_;
  EXPECT_EQ(out_, dir_.File("bin/libddprun_ports.so\n"));
}

TEST_F(PortGuardFileTest, MissingOrNotToBePreloaded_IsAUsageError) {
  Copy("launcher/ddprun", dir_.File("bin/ddprun"));
  EXPECT_EQ(Run(dir_.File("bin/ddprun"), &out_, &err_), 2);
  EXPECT_NE(err_.find("ddprun: can't enforce --port-range: "), std::string::npos) << err_;
  EXPECT_NE(err_.find(dir_.File("bin/libddprun_ports.so is missing")), std::string::npos) << err_;
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
  Copy("launcher/ddprun", dir_.File("b in/ddprun"));
  Copy(kGuard, dir_.File("b in/libddprun_ports.so"));
  EXPECT_EQ(Run(dir_.File("b in/ddprun"), &out_, &err_), 2);
  EXPECT_NE(err_.find("has a space or a colon"), std::string::npos) << err_;
}

}  // namespace
}  // namespace ddprun::testing
