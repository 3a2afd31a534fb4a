#ifndef DDPRUN_TESTS_RENDEZVOUS_HA_SERVERS_H_
#define DDPRUN_TESTS_RENDEZVOUS_HA_SERVERS_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace ddprun::testing {

// Several real rendezvousd with one etcd, on free ports of 127.0.0.1, with short leases. None runs at first.
// Thread-compatible.
class Servers {
 public:
  // `flags` are given to each.
  Servers(int count, std::string etcd, std::vector<std::string> flags = {});

  // It listens when this returns, or a failed test. `etcd`: another list of members for this one.
  void Start(int server, const std::string& etcd = "");
  // Server 0 leads; the others follow.
  void StartAll();

  bool AwaitLead(int server);
  // The first other one than `last` that leads; -1: none does, for long.
  int AwaitLeaderAfter(int last);

  int count() const { return static_cast<int>(ports_.size()); }
  std::string Address(int server) const;
  // Of all, separated by commas; those that follow server 0 come first.
  std::string FollowersFirst() const;
  std::string Endpoints() const;
  // REQUIRES: it was started.
  Process& operator[](int server) { return *processes_[server]; }

 private:
  const std::string etcd_;
  const std::vector<std::string> flags_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_HA_SERVERS_H_
