#include "rendezvous/ha/etcd_problem.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

struct Known {
  absl::string_view sign;  // substring of the message of gRPC or etcd
  absl::string_view text;
};

constexpr Known kKnown[] = {
    {"DNS resolution failed", "the host name does not resolve; check --etcd"},
    {"Connection refused", "connection refused; check --etcd, and that etcd runs there"},
    {"Deadline Exceeded", "no answer in time; check --etcd, and that etcd has a leader (etcdctl endpoint status)"},
    {"certificate verify failed",
     "etcd's certificate is not valid here; check --etcd-cacert, and that the certificate is for this host name and "
     "has not expired"},
    {"user name is empty", "etcd asks for a user; set DDPRUN_ETCD_USER=NAME:PASSWORD"},
    {"authentication failed", "wrong user or password; check DDPRUN_ETCD_USER"},
    {"authentication is not enabled", "etcd has no authentication; unset DDPRUN_ETCD_USER"},
    {"permission denied",
     "permission denied; grant the user of DDPRUN_ETCD_USER readwrite permission for the prefix --etcd-prefix"},
    {"database space exceeded",
     "etcd's database is full; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"},
};

constexpr char kNoTls[] = "etcd closed the connection; if it uses TLS, give --etcd-cacert";
constexpr char kWithTls[] =
    "the TLS handshake failed; check --etcd-cacert, that etcd uses TLS, and --etcd-cert and --etcd-key if it asks for "
    "a certificate";

}  // namespace

std::string DescribeEtcdProblem(absl::string_view message, bool has_tls) {
  for (const Known& known : kKnown) {
    if (absl::StrContains(message, known.sign)) return std::string(known.text);
  }
  for (const absl::string_view sign :
       {"Socket closed", "Connection reset", "handshake failed", "Handshake read failed"}) {
    if (absl::StrContains(message, sign)) return has_tls ? kWithTls : kNoTls;
  }
  message = GrpcCause(message);
  absl::ConsumePrefix(&message, "etcdserver: ");
  return std::string(message);
}

}  // namespace ddprun::rendezvous
