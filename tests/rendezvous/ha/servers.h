#ifndef DDPRUN_TESTS_RENDEZVOUS_HA_SERVERS_H_
#define DDPRUN_TESTS_RENDEZVOUS_HA_SERVERS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/testing/process.h"

namespace ddprun::testing {

// Several real rendezvousd with one etcd, on free ports of 127.0.0.1, with short leases. Initially none runs.
// Thread-compatible.
class Servers {
 public:
  // `flags`: for each server.
  Servers(int count, std::string etcd, std::vector<std::string> flags = {});

  // Returns when the server listens; otherwise fails the test. `etcd`: another list of members for this server.
  void Start(int server, const std::string& etcd = "");
  // Server 0 leads; the others follow.
  void StartAll();
  void Kill(int server);

  bool AwaitLead(int server);
  // A server other than `last` that leads; -1 if none does within Process::kPatience.
  int AwaitLeaderAfter(int last);

  int count() const { return static_cast<int>(ports_.size()); }
  std::string Address(int server) const;
  // Addresses of all servers, separated by commas. FollowersFirst has that of server 0 at the end.
  std::string FollowersFirst() const;
  std::string Endpoints() const;
  // REQUIRES: the server was started.
  Process& operator[](int server) { return *processes_[server]; }

 private:
  const std::string etcd_;
  const std::vector<std::string> flags_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// A test with a real etcd and servers, which its SetUp or its test starts. Skipped without etcd.
class ServersTest : public ::testing::Test {
 protected:
  explicit ServersTest(int count) : count_(count) {}

  void SetUp() override {
    if (!EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
    etcd_ = std::make_unique<EtcdCluster>();
    servers_ = std::make_unique<Servers>(count_, etcd_->Endpoints());
  }

  const int count_;
  const TempDir dir_;
  std::unique_ptr<EtcdCluster> etcd_;
  std::unique_ptr<Servers> servers_;
};

struct Answer {
  int exit = 0;
  std::string out, err;
};

// Runs ddprunctl --server=SERVERS with these arguments.
Answer Ctl(const std::string& servers, std::vector<std::string> arguments);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_HA_SERVERS_H_
