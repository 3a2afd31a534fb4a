#ifndef DDPRUN_RENDEZVOUS_HA_ETCD_PROBLEM_H_
#define DDPRUN_RENDEZVOUS_HA_ETCD_PROBLEM_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// PURE: what kept a call to etcd from succeeding and what to do about it, for an operator, from the words of gRPC or
// etcd: "connection refused; check --etcd, and that etcd runs there". `has_tls`: the connection was to use TLS.
std::string DescribeEtcdProblem(absl::string_view message, bool has_tls);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_PROBLEM_H_
