// rendezvousd as operators install it: systemd's unit and protocol, the manifests for Kubernetes, an upgrade during a
// running job.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"
#include "tests/rendezvous/http/http_client.h"

namespace ddprun::testing {
namespace {

constexpr char kProgram[] = "rendezvous/daemon/rendezvousd";
constexpr char kUnit[] = "packaging/systemd/rendezvousd.service";
constexpr int kSkipped = 77;

// The socket on which systemd receives notifications of the service.
class NotifySocket {
 public:
  NotifySocket() : name_(absl::StrCat("ddprun-notify-", getpid())), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name_.data(), name_.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), offsetof(sockaddr_un, sun_path) + 1 + name_.size()), 0);
    const timeval patience = {.tv_sec = 120, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~NotifySocket() { close(fd_); }
  std::string address() const { return "@" + name_; }
  std::string Receive() const {
    char buffer[256];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    return n < 0 ? "nothing came" : std::string(buffer, n);
  }

 private:
  const std::string name_;
  const int fd_;
};

TEST(ServiceTest, Systemd_StartAndStop_IsNotified) {
  const NotifySocket manager;
  Process server({kProgram, "--listen=127.0.0.1:0"}, {{"NOTIFY_SOCKET", manager.address()}});
  EXPECT_EQ(manager.Receive(), "READY=1");
  EXPECT_TRUE(server.WaitForOut("listening on")) << server.Err();
  server.Signal(SIGHUP);  // has no effect
  server.Signal(SIGTERM);
  EXPECT_EQ(manager.Receive(), "STOPPING=1");
  EXPECT_EQ(server.Wait(), 0);
}

TEST(ServiceTest, Systemd_NotifySocketInvalid_Serves) {
  for (const std::string& address : {std::string("/nonexistent"), std::string("x"), std::string(500, '/')}) {
    Process server({kProgram, "--listen=127.0.0.1:0"}, {{"NOTIFY_SOCKET", address}});
    EXPECT_TRUE(server.WaitForOut("listening on")) << server.Err();
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0) << server.Err();
  }
}

TEST(ServiceTest, Unit_IsValidAndSandboxed) {
  if (access("/usr/bin/systemd-analyze", X_OK) != 0) GTEST_SKIP() << "there is no systemd-analyze";
  TempDir dir;
  const std::string copy = dir.File("rendezvousd.service");
  char* const program = realpath(kProgram, nullptr);
  std::ofstream(copy) << absl::StrReplaceAll(ReadFile(kUnit), {{"/usr/local/bin/rendezvousd", program}});
  free(program);
  Process verify({"/usr/bin/systemd-analyze", "verify", "--man=no", copy});
  EXPECT_EQ(verify.Wait(), 0) << verify.Err();
  EXPECT_THAT(verify.Err(), Not(HasSubstr("rendezvousd.service")));
  // The threshold is in tenths; ordinary services have 96.
  Process security({"/usr/bin/systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", copy});
  EXPECT_EQ(security.Wait(), 0) << security.Out() << security.Err();
}

TEST(ServiceTest, Files_Flags_Exist) {
  Process help({kProgram, "--help"});
  ASSERT_EQ(help.Wait(), 0);
  const std::set<std::string> known = [&] {
    const std::string text = help.Out();
    const std::regex flag("--[a-z][a-z-]*");
    return std::set<std::string>(std::sregex_token_iterator(text.begin(), text.end(), flag), {});
  }();
  // Files, and marks of lines with the program's arguments.
  const std::vector<std::pair<std::string, std::string>> places = {
      {kUnit, "ExecStart="},
      {"packaging/container/Containerfile", "CMD "},
      {"packaging/kubernetes/rendezvousd.yaml", "args: "},
      {"packaging/kubernetes/rendezvousd_etcd.yaml", "args: "}};
  for (const auto& [file, mark] : places) {
    int found = 0;
    const std::vector<std::string> lines = absl::StrSplit(ReadFile(file), '\n');
    for (const std::string& line : lines) {
      if (!absl::StrContains(line, mark)) continue;
      const std::regex flag("--[a-z][a-z-]*");
      for (std::sregex_token_iterator at(line.begin(), line.end(), flag), end; at != end; ++at, ++found) {
        EXPECT_TRUE(known.contains(*at)) << file << ": rendezvousd has no " << *at;
      }
    }
    EXPECT_GT(found, 0) << file << ": no line with " << mark;
  }
}

constexpr char kToken[] = "0123456789abcdef";

// Starts the server, because sockets of a valid configuration may still conflict. It must listen at `port` on all
// addresses of this host.
void ExpectStarts(std::vector<std::string> argv, int port, const std::map<std::string, std::string>& environment = {}) {
  argv.insert(argv.begin(), kProgram);
  Process server(argv, environment);
  ASSERT_TRUE(server.WaitForOut("listening on")) << server.Err();
  std::vector<std::string> hosts = {"127.0.0.1"};
  if (access("/proc/net/if_inet6", R_OK) == 0 && !ReadFile("/proc/net/if_inet6").empty()) hosts.push_back("[::1]");
  for (const std::string& host : hosts) {
    Process ctl({"ddprunctl/ddprunctl", absl::StrCat("--server=", host, ":", port), "jobs"},
                {{"DDPRUN_TOKEN", kToken}});
    EXPECT_EQ(ctl.Wait(), 0) << host << ": " << ctl.Err();
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.Err();
}

// Files of an installation in a temporary folder, and its port.
class Installed {
 public:
  Installed() {
    std::ofstream(dir_.File("token")) << kToken << "\n";
    chmod(dir_.File("token").c_str(), 0600);
  }
  int port() const { return port_; }
  std::string Text(const std::string& text) const {
    return absl::StrReplaceAll(text, {{"29400", absl::StrCat(port_)},
                                      {"/etc/ddprun/", dir_.File("")},
                                      {"/var/lib/rendezvousd", dir_.File("state")},
                                      {"${STATE_DIRECTORY}", dir_.File("state")},
                                      {"${CREDENTIALS_DIRECTORY}/", dir_.File("")}});
  }
  std::string Configuration(const std::string& text) const {
    std::ofstream(dir_.File("rendezvousd.conf")) << Text(text);
    return dir_.File("rendezvousd.conf");
  }

 private:
  const TempDir dir_;
  const int port_ = FreePort();
};

// Returns the rest of the line that begins with `mark`.
std::string LineWith(const std::string& file, const std::string& mark) {
  for (const absl::string_view line : absl::StrSplit(ReadFile(file), '\n')) {
    if (absl::StartsWith(line, mark)) return std::string(line.substr(mark.size()));
  }
  ADD_FAILURE() << file << ": no line with " << mark;
  return "";
}

TEST(ServiceTest, Unit_PackagedConfiguration_Starts) {
  const Installed installed;
  installed.Configuration(ReadFile("packaging/systemd/rendezvousd.conf"));
  std::vector<std::string> argv = absl::StrSplit(installed.Text(LineWith(kUnit, "ExecStart=")), ' ');
  EXPECT_EQ(argv[0], "/usr/local/bin/rendezvousd");
  argv.erase(argv.begin());
  ExpectStarts(argv, installed.port());
  // By default systemd gives up after five starts in ten seconds.
  EXPECT_EQ(LineWith(kUnit, "StartLimitIntervalSec="), "0");
}

TEST(ServiceTest, Guide_Configuration_Starts) {
  const std::string guide = ReadFile("docs/rendezvousd.md");
  const size_t begin = guide.find("    # /etc/ddprun/rendezvousd.conf\n");
  ASSERT_NE(begin, std::string::npos);
  const Installed installed;
  ExpectStarts({"--config", installed.Configuration(guide.substr(begin, guide.find("\n\n", begin) - begin + 1))},
               installed.port());
}

TEST(ServiceTest, Container_Command_Starts) {
  const Installed installed;
  const std::regex argument("\"([^\"]*)\"");
  const std::string line = installed.Text(LineWith("packaging/container/Containerfile", "CMD "));
  const std::vector<std::string> argv(std::sregex_token_iterator(line.begin(), line.end(), argument, 1), {});
  ExpectStarts(argv, installed.port());
}

// In both orders; another program at the port is still detected.
TEST(ServiceTest, Listen_BothWildcards_ShareAPort) {
  const int port = FreePort();
  const std::string ipv4 = absl::StrCat("--listen=0.0.0.0:", port), ipv6 = absl::StrCat("--listen=[::]:", port);
  ExpectStarts({ipv4}, port);
  ExpectStarts({ipv6}, port);
  ExpectStarts({ipv6, ipv4}, port);
  ExpectStarts({ipv4, ipv6}, port);
  Process first({kProgram, ipv4, ipv6});
  ASSERT_TRUE(first.WaitForOut(absl::StrCat("listening on [::]:", port))) << first.Err();
  Process second({kProgram, ipv6, ipv4});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.Err(), HasSubstr("address in use"));
}

TEST(ServiceTest, Manifests_All_AreConsistent) {
  for (const char* servers : {"", "_etcd"}) {
    TempDir dir;
    Process check({"/usr/bin/python3", "tests/service/manifests.py",
                   absl::StrCat("packaging/kubernetes/rendezvousd", servers, ".yaml"),
                   absl::StrCat("packaging/kubernetes/network_policy", servers, ".yaml"), dir.File("conf")});
    const int code = check.Wait();
    if (code == kSkipped) GTEST_SKIP() << "there is no python3-yaml";
    EXPECT_EQ(code, 0) << check.Err();
    EXPECT_EQ(check.Out(), "");
    const Installed installed;
    const std::string text = absl::StrReplaceAll(ReadFile(dir.File("conf")), {{"0.0.0.0:9400", "0.0.0.0:0"}});
    const std::map<std::string, std::string> environment = {{"DDPRUN_TOKEN", kToken}};
    if (servers[0] == '\0') {
      ExpectStarts({"--config", installed.Configuration(text)}, installed.port(), environment);
      continue;
    }
    // Without an etcd the server can't start.
    Process valid({kProgram, "--config", dir.File("conf"), "--check-config"}, environment);
    EXPECT_EQ(valid.Wait(), 0) << valid.Err();
  }
}

// The program that benchmarks/fleet.py runs.
TEST(FleetTest, Fleet_ThirtyLaunchers_StartRestartAndEnd) {
  Process server({kProgram, "--listen=127.0.0.1:0"});
  ASSERT_TRUE(server.WaitForOut("\n")) << server.Err();
  const std::vector<std::string> words = absl::StrSplit(absl::StripAsciiWhitespace(server.Out()), ' ');
  Process fleet({"benchmarks/fleet/fleet", "--server=" + words.back(), "--nodes=30", "--hold=0.1",
                 absl::StrCat("--pid=", server.pid())});
  EXPECT_EQ(fleet.Wait(), 0) << fleet.Err();
  for (const char* line : {"failure_to_all_assigned_ms ", "end_to_all_finished_ms ", "lost 0.000\n"}) {
    EXPECT_THAT(fleet.Out(), HasSubstr(line));
  }
  EXPECT_THAT(server.Err(), HasSubstr("round 2 assigned to 30 nodes"));
}

// A job of two nodes, with a server that persists its state.
class UpgradeTest : public ::testing::Test {
 protected:
  void StartServer() {
    server_ = std::make_unique<Process>(std::vector<std::string>{kProgram, absl::StrCat("--listen=127.0.0.1:", port_),
                                                                 "--state-dir=" + dir_.File("state"),
                                                                 absl::StrCat("--http=127.0.0.1:", http_port_)});
    ASSERT_TRUE(server_->WaitForOut("HTTP on port")) << server_->Err();
  }
  std::unique_ptr<Launcher> StartNode() {
    const std::string script =
        absl::StrCat(kSayRank, "while [ ! -e ", dir_.File("end"), " ]; do [ $RANK != 1 -o ! -e ", dir_.File("fail"),
                     " ] || { rm ", dir_.File("fail"), "; exit 5; }; ", "sleep 0.02; done");
    return std::make_unique<Launcher>(
        NodeFlags(port_, "2", 1, {"--rdzv-conf=is_host=false", "--max-restarts=1"}, script),
        std::map<std::string, std::string>{{"LOGLEVEL", "INFO"}});
  }
  TempDir dir_;
  const int port_ = FreePort(), http_port_ = FreePort();
  std::unique_ptr<Process> server_;
};

TEST_F(UpgradeTest, Upgrade_ServerReplaced_EventsAndGoodputContinue) {
  StartServer();
  const auto a = StartNode(), b = StartNode();
  for (const auto& node : {a.get(), b.get()}) ASSERT_TRUE(node->WaitForOut("rank=")) << node->Err();
  Touch(dir_.File("fail"));
  for (const auto& node : {a.get(), b.get()}) ASSERT_TRUE(node->WaitForOut("round=2")) << node->Err();
  const auto ctl = [&](const std::string& command) {
    Process ctl({"ddprunctl/ddprunctl", absl::StrCat("--server=127.0.0.1:", port_), command, "job"});
    EXPECT_EQ(ctl.Wait(), 0) << ctl.Err();
    return ctl.Out();
  };
  // Lines of events without their numbers, and without those of nodes.
  const auto story = [&] {
    std::vector<std::string> lines;
    for (const auto line : absl::StrSplit(ctl("events"), '\n', absl::SkipEmpty())) {
      if (!absl::StrContains(line, "  node.")) lines.emplace_back(line.substr(line.find("  ")));
    }
    return lines;
  };
  const std::vector<std::string> before = story();
  ASSERT_EQ(before.size(), 5u) << "created, assigned, failed, stopped, assigned";
  // Seconds until the first step, which these workers do not report.
  const auto starting = [&] {
    const std::string job = HttpClient(http_port_).Get("/api/v1/jobs/job");
    const size_t at = job.find("\"starting\":");
    return at == std::string::npos ? 0 : std::stod(job.substr(at + sizeof "\"starting\":" - 1));
  };
  double spent = starting();
  EXPECT_GT(spent, 0);
  Process watch({"ddprunctl/ddprunctl", absl::StrCat("--server=127.0.0.1:", port_), "show", "--watch", "job"});
  ASSERT_TRUE(watch.WaitForOut("running")) << watch.Err();
  for (int i = 0; i < 2; ++i) {
    server_->Signal(i == 0 ? SIGKILL : SIGTERM);
    server_->Wait();
    StartServer();
    ASSERT_TRUE(Eventually([&] { return Count(server_->Err(), " joined") == 2; })) << server_->Err();
    EXPECT_EQ(story(), before);
    EXPECT_GE(starting(), spent) << "a running job's goodput goes on";
    spent = starting();
    const std::string metrics = HttpClient(http_port_).Get("/metrics");
    for (const char* line :
         {"\nddprun_events_total{kind=\"job.created\"} 0\n", "\nddprun_events_total{kind=\"round.assigned\"} 0\n",
          "\nddprun_worker_failures_total{kind=\"exit\"} 0\n", "\nddprun_restarts_total 0\n"}) {
      EXPECT_THAT(metrics, HasSubstr(line));
    }
  }
  Touch(dir_.File("end"));
  EXPECT_EQ(a->Wait(), 0) << a->Err();
  EXPECT_EQ(b->Wait(), 0) << b->Err();
  EXPECT_EQ(watch.Wait(), 0) << watch.Err();
  const std::string shown = ctl("show");
  EXPECT_THAT(shown, HasSubstr("training"));
  server_->Signal(SIGKILL);
  server_->Wait();
  StartServer();
  const std::vector<std::string> after = story();
  ASSERT_EQ(after.size(), 6u);
  EXPECT_THAT(after.back(), HasSubstr("job.finished"));
  const auto line_of = [](const std::string& text) {
    for (const auto line : absl::StrSplit(text, '\n')) {
      if (absl::StrContains(line, "training")) return std::string(line);
    }
    return std::string();
  };
  EXPECT_EQ(line_of(ctl("show")), line_of(shown)) << "an ended job keeps its goodput";
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

}  // namespace
}  // namespace ddprun::testing
