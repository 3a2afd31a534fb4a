#include "tests/rendezvous/ha/servers.h"

#include <signal.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

constexpr char kLeads[] = "leads since revision";

}  // namespace

Servers::Servers(int count, std::string etcd, std::vector<std::string> flags)
    : etcd_(std::move(etcd)), flags_(std::move(flags)), processes_(count) {
  for (int server = 0; server < count; ++server) ports_.push_back(FreePort());
}

void Servers::Start(int server, const std::string& etcd) {
  std::vector<std::string> command = {"rendezvous/daemon/rendezvousd", absl::StrCat("--listen=", Address(server)),
                                      absl::StrCat("--etcd=", etcd.empty() ? etcd_ : etcd), "--lease-ttl=2",
                                      "--log-level=INFO"};
  command.insert(command.end(), flags_.begin(), flags_.end());
  processes_[server] = std::make_unique<Process>(std::move(command));
  ASSERT_TRUE(processes_[server]->WaitForOut("listening")) << processes_[server]->Err();
}

void Servers::StartAll() {
  for (int server = 0; server < count(); ++server) {
    Start(server);
    if (server == 0) {
      ASSERT_TRUE(AwaitLead(0)) << processes_[0]->Err();
    }
  }
}

void Servers::Kill(int server) {
  processes_[server]->Signal(SIGKILL);
  processes_[server]->Wait();
}

bool Servers::AwaitLead(int server) { return processes_[server]->WaitForErr(kLeads); }

int Servers::AwaitLeaderAfter(int last) {
  int leader = -1;
  EXPECT_TRUE(Eventually([&] {
    for (int server = 0; server < count(); ++server) {
      if (server == last || processes_[server] == nullptr || !Alive(processes_[server]->pid())) continue;
      if (absl::StrContains(processes_[server]->Err(), kLeads)) leader = server;
    }
    return leader >= 0;
  }));
  return leader;
}

std::string Servers::Address(int server) const { return absl::StrCat("127.0.0.1:", ports_[server]); }

std::string Servers::FollowersFirst() const {
  std::string endpoints;
  for (int server = 1; server < count(); ++server) absl::StrAppend(&endpoints, Address(server), ",");
  return endpoints + Address(0);
}

std::string Servers::Endpoints() const {
  std::string endpoints = Address(0);
  for (int server = 1; server < count(); ++server) absl::StrAppend(&endpoints, ",", Address(server));
  return endpoints;
}

Answer Ctl(const std::string& servers, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ddprunctl/ddprunctl", absl::StrCat("--server=", servers)});
  Process ctl(std::move(arguments));
  const int exit = ctl.Wait();
  return {exit, ctl.Out(), ctl.Err()};
}

}  // namespace ddprun::testing
