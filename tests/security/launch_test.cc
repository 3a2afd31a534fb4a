// Real launchers and a real rendezvousd with credentials.
#include "tests/e2e/launch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/security/certificates.h"

namespace ddprun::testing {
namespace {

const char kToken[] = "the-token-of-this-test-only";

class Rendezvousd : public Process {
 public:
  Rendezvousd(int port, std::vector<std::string> more, std::map<std::string, std::string> environment = {})
      : Process(Launcher::Command("rendezvous/daemon/rendezvousd", Flags(port, std::move(more))),
                std::move(environment)) {}

 private:
  static std::vector<std::string> Flags(int port, std::vector<std::string> more) {
    more.push_back(absl::StrCat("--listen=127.0.0.1:", port));
    return more;
  }
};

std::vector<std::string> OneNode(int port, std::vector<std::string> more, const std::string& script) {
  more.push_back("--rdzv-conf=is_host=false");
  return NodeFlags(port, "1", 1, std::move(more), script);
}

TEST(LaunchTest, Token_InEnvironment_IsNotPassedToWorkers) {
  const int port = FreePort();
  Rendezvousd server(port, {}, {{"DDPRUN_TOKEN", kToken}});
  ASSERT_TRUE(server.WaitForOut("listening")) << server.Err();
  Launcher launcher(OneNode(port, {},
                            "env | grep -c DDPRUN_TOKEN; tr '\\0' '\\n' </proc/$PPID/environ | grep -c "
                            "the-''token; tr '\\0' ' ' </proc/$PPID/cmdline | grep -c the-''token; true"),
                    {{"DDPRUN_TOKEN", kToken}, {"DDPRUN_TOKEN_FILE", "/nowhere"}, {"LOGLEVEL", "DEBUG"}});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(launcher.Out(), "0\n0\n0\n");
  EXPECT_EQ(launcher.Err().find(kToken), std::string::npos);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_EQ((server.Out() + server.Err()).find(kToken), std::string::npos);
}

TEST(LaunchTest, Token_WrongOrMissing_OneLineAndExit1) {
  const std::string folder = NewFolder("token");
  WriteFile(folder + "/right", kToken);
  WriteFile(folder + "/wrong", "another-token-than-the-servers");
  const int port = FreePort();
  Rendezvousd server(port, {absl::StrCat("--token-file=", folder, "/right")});
  ASSERT_TRUE(server.WaitForOut("listening")) << server.Err();
  Launcher wrong(OneNode(port, {absl::StrCat("--token-file=", folder, "/wrong")}, "echo ran"));
  EXPECT_EQ(wrong.Wait(), 1);
  EXPECT_EQ(Lines(wrong.Err()), 1) << wrong.Err();
  EXPECT_NE(wrong.Err().find("token"), std::string::npos) << wrong.Err();
  Launcher none(OneNode(port, {}, "echo ran"));
  EXPECT_EQ(none.Wait(), 1);
  EXPECT_EQ(Lines(none.Err()), 1) << none.Err();
  EXPECT_EQ(wrong.Out() + none.Out(), "");
}

TEST(LaunchTest, Files_Unusable_OneLineAndExit2) {
  const std::vector<std::vector<std::string>> cases = {
      {"--token-file=/nowhere"}, {"--tls-ca=/nowhere"}, {"--tls-cert=/nowhere"}};
  for (const std::vector<std::string>& flags : cases) {
    Launcher launcher(OneNode(FreePort(), flags, "echo ran"));
    EXPECT_EQ(launcher.Wait(), 2) << flags[0];
    EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
    Rendezvousd server(FreePort(), flags);
    EXPECT_EQ(server.Wait(), 2) << flags[0];
    EXPECT_EQ(Lines(server.Err()), 1) << server.Err();
  }
}

// A CA certificate is enough to trust a server, but not to be one.
TEST(LaunchTest, Files_OnlyCaOnServersHost_HintsHowToJoin) {
  TestCa ca(NewFolder("ca"));
  ca.Issue("node", "IP:127.0.0.1");
  const int port = FreePort();
  Rendezvousd server(port, {"--tls-cert=" + ca.cert("node"), "--tls-key=" + ca.key("node")});
  ASSERT_TRUE(server.WaitForOut("listening")) << server.Err();
  Launcher refused(NodeFlags(port, "1", 1, {"--tls-ca=" + ca.ca()}, "echo ran"));
  EXPECT_NE(refused.Wait(), 0);
  EXPECT_NE(refused.Err().find("if rendezvousd runs here, set --rdzv-conf=is_host=0"), std::string::npos)
      << refused.Err();
  Launcher joined(NodeFlags(port, "1", 1, {"--tls-ca=" + ca.ca(), "--rdzv-conf=is_host=0"}, "echo ran"));
  EXPECT_EQ(joined.Wait(), 0) << joined.Err();
}

// One of two launchers, which have certificates and a token, hosts the server.
TEST(LaunchTest, HostingLauncher_Credentials_AreRequired) {
  TestCa ca(NewFolder("ca"));
  ca.Issue("node", "IP:127.0.0.1,DNS:localhost");
  const std::vector<std::string> tls = {absl::StrCat("--tls-cert=", ca.cert("node")),
                                        absl::StrCat("--tls-key=", ca.key("node")), absl::StrCat("--tls-ca=", ca.ca()),
                                        "--tls-allowed-names=127.0.0.1,localhost"};
  const int port = FreePort();
  Launcher stranger(NodeFlags(port, "2", 1, {"--rdzv-conf=is_host=false,join_timeout=60"}, "echo ran"));
  Launcher a(NodeFlags(port, "2", 1, tls, kSayRank), {{"DDPRUN_TOKEN", kToken}});
  Launcher b(NodeFlags(port, "2", 1, tls, kSayRank), {{"DDPRUN_TOKEN", kToken}});
  EXPECT_EQ(a.Wait(), 0) << a.Err();
  EXPECT_EQ(b.Wait(), 0) << b.Err();
  EXPECT_EQ(Count(a.Out() + b.Out(), "/2 local"), 2) << a.Out() << b.Out();
  stranger.Signal(SIGTERM);
  stranger.Wait();
  EXPECT_EQ(stranger.Out(), "");
}

TEST(LaunchTest, ShowConfig_Credentials_ShowsPathsOnly) {
  const std::string path = NewFolder("token") + "/token";
  WriteFile(path, kToken);
  Launcher file({"--show-config", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", "--token-file", path});
  EXPECT_EQ(file.Wait(), 0) << file.Err();
  EXPECT_NE(file.Out().find(path), std::string::npos) << file.Out();
  Launcher variable({"--show-config", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:1"}, {{"DDPRUN_TOKEN", kToken}});
  EXPECT_EQ(variable.Wait(), 0) << variable.Err();
  EXPECT_NE(variable.Out().find("DDPRUN_TOKEN"), std::string::npos) << variable.Out();
  EXPECT_EQ((file.Out() + variable.Out()).find(kToken), std::string::npos);
}

}  // namespace
}  // namespace ddprun::testing
