#ifndef DDPRUN_RENDEZVOUS_HA_ETCD_PROBLEM_H_
#define DDPRUN_RENDEZVOUS_HA_ETCD_PROBLEM_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// PURE: describes, for an operator, why a call to etcd failed and what to do, based on the message of gRPC or etcd:
// "connection refused; check --etcd, and that etcd runs there". `has_tls`: the connection uses TLS.
std::string DescribeEtcdProblem(absl::string_view message, bool has_tls);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_HA_ETCD_PROBLEM_H_
