#ifndef DDPRUN_TESTS_RENDEZVOUS_HA_ETCD_CLUSTER_H_
#define DDPRUN_TESTS_RENDEZVOUS_HA_ETCD_CLUSTER_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace ddprun::testing {

// A real etcd of three members on free ports of 127.0.0.1, with short elections. Thread-compatible.
class EtcdCluster {
 public:
  static constexpr int kMembers = 3;

  // True if this host has etcd; otherwise the tests are skipped.
  static bool IsInstalled();

  // Command of an etcd with one member, which clients reach at `client` (HOST:PORT).
  static std::vector<std::string> SoleMember(const std::string& client, const std::string& data_dir,
                                             const std::vector<std::string>& more = {},
                                             const std::string& scheme = "http");

  // Returns when the cluster is ready; otherwise fails the test.
  EtcdCluster();

  std::string Endpoint(int member) const;
  std::string Endpoints() const;  // separated by commas

  void Kill(int member);
  void Signal(int member, int signal);
  void Restart(int member);
  // Value of a counter of this member's gRPC server, as "msg_received" (on streams) or "started" (calls), for a method.
  // REQUIRES: the member runs.
  int Counter(int member, const std::string& name, const std::string& method) const;
  // Sum over all members.
  int Counter(const std::string& name, const std::string& method) const;
  // The member that leads; -1 if none does within Process::kPatience.
  int Leader();

  // Values of the keys with this prefix.
  std::string Get(const std::string& prefix) { return Ctl({"get", "--prefix", prefix}); }
  std::string Ctl(std::vector<std::string> arguments, const std::string& endpoints = "") const;

 private:
  void Start(int member);

  TempDir dir_;
  std::array<int, kMembers> client_ports_;
  std::array<int, kMembers> peer_ports_;
  std::array<std::unique_ptr<Process>, kMembers> members_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_HA_ETCD_CLUSTER_H_
