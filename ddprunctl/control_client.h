#ifndef DDPRUN_DDPRUNCTL_CONTROL_CLIENT_H_
#define DDPRUN_DDPRUNCTL_CONTROL_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/control.grpc.pb.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/core/credentials.h"

namespace ddprun::ctl {

// Calls the leader of one or more servers. Thread-compatible.
class Client {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(10);

  // REQUIRES: CheckCredentials succeeded. `servers`: HOST:PORT each, at least one.
  Client(std::vector<std::string> servers, rendezvous::Credentials credentials)
      : servers_(std::move(servers)), credentials_(std::move(credentials)) {}

  // The context and stubs of one call.
  struct Target {
    grpc::ClientContext* context;
    v1::Rendezvous::Stub* rendezvous;
    v1::Control::Stub* control;
  };
  using Make = std::function<grpc::Status(const Target& target)>;

  // Makes the call on one server after another until a leader answers.
  //   UNAVAILABLE  none is reachable, or none leads; the message names them. Or the leader returned it.
  //   others       as returned by the server.
  absl::Status Call(const Make& make, absl::Duration timeout = kTimeout);

  // True if a server may have received a call that failed without an answer.
  bool may_have_arrived() const { return may_have_arrived_; }

 private:
  // `leader`: set if the server does not lead and named the leader. `answered`: true if the status comes from the
  // leader or is not a server's fault; false if it says why there is no answer.
  absl::Status CallOne(const std::string& server, const Make& make, absl::Duration timeout, std::string* leader,
                       bool* answered);

  std::vector<std::string> servers_;
  const rendezvous::Credentials credentials_;
  bool may_have_arrived_ = false;
};

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_CONTROL_CLIENT_H_
