#include "tests/rendezvous/ha/etcd_cluster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/rendezvous/http/http_client.h"

namespace ddprun::testing {
namespace {

constexpr char kEtcd[] = "/usr/bin/etcd";
constexpr char kEtcdctl[] = "/usr/bin/etcdctl";

std::vector<std::string> Command(const std::string& name, const std::string& client_url, const std::string& peer_url,
                                 const std::string& cluster, const std::string& data_dir,
                                 const std::vector<std::string>& more) {
  const std::string flags = absl::StrCat("--listen-client-urls=", client_url, " --advertise-client-urls=", client_url,
                                         " --listen-peer-urls=", peer_url, " --initial-advertise-peer-urls=", peer_url,
                                         " --logger=zap --log-level=warn");
  std::vector<std::string> command = absl::StrSplit(flags, ' ');
  command.insert(command.begin(), {kEtcd, "--name=" + name, "--data-dir=" + data_dir, "--initial-cluster=" + cluster});
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// Returns the text after `"NAME" : ` in the output of etcdctl.
std::string Field(const std::string& text, const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(" : ", 1));
    if (field.first == absl::StrCat("\"", name, "\"")) return field.second;
  }
  return "";
}

}  // namespace

bool EtcdCluster::IsInstalled() { return access(kEtcd, X_OK) == 0 && access(kEtcdctl, X_OK) == 0; }

std::vector<std::string> EtcdCluster::SoleMember(const std::string& client, const std::string& data_dir,
                                                 const std::vector<std::string>& more, const std::string& scheme) {
  const std::string peer = absl::StrCat("http://127.0.0.1:", FreePort());
  return Command("sole", absl::StrCat(scheme, "://", client), peer, "sole=" + peer, data_dir, more);
}

EtcdCluster::EtcdCluster() {
  for (int member = 0; member < kMembers; ++member) {
    client_ports_[member] = FreePort();
    peer_ports_[member] = FreePort();
  }
  for (int member = 0; member < kMembers; ++member) Start(member);
  EXPECT_TRUE(Eventually([this] { return absl::StrContains(Ctl({"put", "ready", "yes"}), "OK"); }));
}

std::string EtcdCluster::Endpoint(int member) const { return absl::StrCat("127.0.0.1:", client_ports_[member]); }

std::string EtcdCluster::Endpoints() const { return absl::StrCat(Endpoint(0), ",", Endpoint(1), ",", Endpoint(2)); }

void EtcdCluster::Start(int member) {
  std::string cluster;
  for (int i = 0; i < kMembers; ++i) {
    absl::StrAppend(&cluster, i == 0 ? "" : ",", "e", i, "=http://127.0.0.1:", peer_ports_[i]);
  }
  const std::string peer = absl::StrCat("http://127.0.0.1:", peer_ports_[member]), name = absl::StrCat("e", member);
  members_[member] = std::make_unique<Process>(
      Command(name, "http://" + Endpoint(member), peer, cluster, dir_.File(name),
              {"--initial-cluster-token=" + dir_.path(), "--heartbeat-interval=50", "--election-timeout=500"}),
      std::map<std::string, std::string>{{"ETCDCTL_API", ""}, {"ETCDCTL_ENDPOINTS", ""}});
}

void EtcdCluster::Kill(int member) {
  members_[member]->Signal(SIGKILL);
  members_[member]->Wait();
}

void EtcdCluster::Signal(int member, int signal) { members_[member]->Signal(signal); }

int EtcdCluster::Counter(int member, const std::string& name, const std::string& method) const {
  HttpClient http(client_ports_[member]);
  http.Send("GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(http.AwaitClosed());
  const std::string start = absl::StrCat("grpc_server_", name, "_total{grpc_method=\"", method, "\"");
  int sum = 0;  // a sum, because two services have a method of this name
  for (const absl::string_view line : absl::StrSplit(http.input(), '\n')) {
    int value = 0;
    if (absl::StartsWith(line, start) && absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &value)) sum += value;
  }
  return sum;
}

int EtcdCluster::Counter(const std::string& name, const std::string& method) const {
  return Counter(0, name, method) + Counter(1, name, method) + Counter(2, name, method);
}

void EtcdCluster::Restart(int member) { Start(member); }

int EtcdCluster::Leader() {
  int leader = -1;
  EXPECT_TRUE(Eventually([&] {
    for (int member = 0; member < kMembers; ++member) {
      if (!Alive(members_[member]->pid())) continue;
      const std::string status = Ctl({"endpoint", "status", "-w", "fields"}, Endpoint(member));
      const std::string id = Field(status, "MemberID");
      if (!id.empty() && id == Field(status, "Leader")) leader = member;
    }
    return leader >= 0;
  }));
  return leader;
}

std::string EtcdCluster::Ctl(std::vector<std::string> arguments, const std::string& endpoints) const {
  std::vector<std::string> argv = {kEtcdctl, "--command-timeout=2s"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Process process(argv, {{"ETCDCTL_API", "3"}, {"ETCDCTL_ENDPOINTS", endpoints.empty() ? Endpoints() : endpoints}});
  process.Wait();
  return process.Out();
}

}  // namespace ddprun::testing
