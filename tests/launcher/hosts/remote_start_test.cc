#include "launcher/hosts/remote_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "proto/hosts.pb.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RemoteStartTest, SshArguments_CommandIsSafeInAnyLoginShell) {
  const std::vector<std::string> arguments =
      SshArguments("user@b", "0123abcd", {{"libddprun_crash.so", "/x", 12}, {"ddprun", "/y", 345}});
  EXPECT_EQ(arguments.front(), "ssh");
  EXPECT_EQ(arguments[arguments.size() - 3], "--");  // so that no host name is an option
  EXPECT_EQ(arguments[arguments.size() - 2], "user@b");
  std::string command = arguments.back();
  EXPECT_THAT(command, HasSubstr("libddprun_crash.so:12 ddprun:345"));
  EXPECT_THAT(command, HasSubstr("/ddprun/0123abcd"));
  ASSERT_TRUE(absl::StartsWith(command, "exec /bin/sh -c '") && absl::EndsWith(command, "'"));
  command = command.substr(17, command.size() - 18);
  EXPECT_EQ(command.find_first_of("'!\\\n"), std::string::npos) << command;
}

struct SshEnd {
  StartStage stage;
  int code;
  const char* error;
  const char* explained;
};

class ExplainSshEndTest : public ::testing::TestWithParam<SshEnd> {};

TEST_P(ExplainSshEndTest, ExplainSshEnd_KnownErrors_NamesCauseAndRemedy) {
  const SshEnd& end = GetParam();
  const std::string text = ExplainSshEnd(end.stage, end.code, end.error, "b");
  EXPECT_THAT(text, HasSubstr(end.explained));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    Ends, ExplainSshEndTest,
    ::testing::Values(
        SshEnd{StartStage::kConnecting, 255, "ssh: Could not resolve hostname b: Name or service not known\r\n",
               "no such host"},
        SshEnd{StartStage::kConnecting, 255, "me@b: Permission denied (publickey,password).\r\n",
               "ssh was not let in (publickey,password): `ssh b true` must work"},
        SshEnd{StartStage::kConnecting, 255,
               "@@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@@@\nHost key verification failed.\n",
               "host key has changed: if the host was reinstalled, run `ssh-keygen -R b`"},
        SshEnd{StartStage::kConnecting, 255,
               "No ED25519 host key is known for b and you have requested strict checking.\nHost key verification "
               "failed.\n",
               "host key is not known here: run `ssh b` once"},
        SshEnd{StartStage::kConnecting, 255, "ssh: connect to host b port 22: Connection refused\n", "start its sshd"},
        SshEnd{StartStage::kConnecting, 255, "ssh: connect to host b port 22: Connection timed out\n", "firewall?"},
        SshEnd{StartStage::kConnecting, 255, "ssh: connect to host b port 22: No route to host\n", "is it down"},
        SshEnd{StartStage::kConnecting, 255, "kex_exchange_identification: read: Connection reset by peer\n",
               "ssh: kex_exchange_identification: read: Connection reset by peer"},
        SshEnd{StartStage::kConnecting, 1, "This account is currently not available.\n",
               "its login shell ended with code 1: This account is currently not available."},
        SshEnd{StartStage::kCopying, 97, "head: error writing 'standard output': No space left on device\n",
               "could not be copied to its ~/.cache/ddprun: head: error writing"},
        SshEnd{StartStage::kCopying, 97, "mkdir: cannot create directory '/x': Permission denied\n",
               "Permission denied"},
        SshEnd{StartStage::kExecuting, 1, "/x/ddprun: /lib/libc.so.6: version `GLIBC_2.34' not found\n",
               "C library is too old"},
        SshEnd{StartStage::kExecuting, 127,
               "/x/ddprun: error while loading shared libraries: libgrpc++.so.1.51: cannot open shared object file\n",
               "it lacks a library of this program"},
        SshEnd{StartStage::kExecuting, 126, "/bin/sh: 1: exec: /x/ddprun: Exec format error\n",
               "not for its processors"},
        SshEnd{StartStage::kExecuting, 126, "/bin/sh: 1: exec: /x/ddprun: Permission denied\n", "without noexec"},
        SshEnd{StartStage::kExecuting, 127, "/bin/sh: exec: line 0: /x/ddprun: not found\n", "it has no glibc"},
        SshEnd{StartStage::kExecuting, 3, "", "the program ended at once with code 3"},
        SshEnd{StartStage::kExecuting, 255, "Connection reset by b port 22\n",
               "its ssh connection was lost: Connection reset by b port 22"},
        SshEnd{StartStage::kRunning, 255,
               "Timeout, server b not responding.\r\nConnection to b closed by remote host.\r\n",
               "its ssh connection was lost: Timeout, server b not responding."}));

TEST(RemoteStartTest, Frames_ComeInAnyPieces) {
  std::string stream;
  hosts::v1::HostReport sent;
  for (const size_t size : {0, 1, 300, 70000}) {
    sent.mutable_output()->set_data(std::string(size, '\xff'));
    AppendFrame(sent, &stream);
  }
  for (const size_t piece : {size_t{1}, size_t{7}, stream.size()}) {
    std::string bytes;
    std::vector<size_t> sizes;
    bool error = false;
    for (size_t at = 0; at < stream.size(); at += piece) {
      bytes += stream.substr(at, piece);
      hosts::v1::HostReport report;
      while (TakeFrame(&bytes, &report, &error)) sizes.push_back(report.output().data().size());
    }
    EXPECT_THAT(sizes, ::testing::ElementsAre(0, 1, 300, 70000));
    EXPECT_FALSE(error);
  }
}

TEST(RemoteStartTest, OtherBytes_AreNoFrames) {
  for (std::string bytes : {std::string("Welcome to node b"), std::string("\0\0\0\4abcd", 8)}) {
    hosts::v1::HostReport report;
    bool error = false;
    EXPECT_FALSE(TakeFrame(&bytes, &report, &error));
    EXPECT_TRUE(error);
  }
}

}  // namespace
}  // namespace ddprun::launcher
