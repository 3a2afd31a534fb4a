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

// Calls the one of several servers that leads. Thread-compatible.
class Client {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(10);

  // REQUIRES: CheckCredentials found no fault. `servers`: HOST:PORT each, at least one.
  Client(std::vector<std::string> servers, rendezvous::Credentials credentials)
      : servers_(std::move(servers)), credentials_(std::move(credentials)) {}

  // Where one call goes.
  struct Target {
    grpc::ClientContext* context;
    v1::Rendezvous::Stub* rendezvous;
    v1::Control::Stub* control;
  };
  using Make = std::function<grpc::Status(const Target& target)>;

  // Makes the call, on one server after the other until one answers that leads.
  //   UNAVAILABLE  none can be reached, or none leads; the text names them. Or the server that leads said so.
  //   others       as the server says.
  absl::Status Call(const Make& make, absl::Duration timeout = kTimeout);

  // Whether a server may have received a call that failed without its answer.
  bool may_have_arrived() const { return may_have_arrived_; }

 private:
  // `leader`: what the server said of who leads, if it does not. `answered`: the status is the leader's, or no server's
  // fault; else it says why there is no answer.
  absl::Status CallOne(const std::string& server, const Make& make, absl::Duration timeout, std::string* leader,
                       bool* answered);

  std::vector<std::string> servers_;
  const rendezvous::Credentials credentials_;
  bool may_have_arrived_ = false;
};

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_CONTROL_CLIENT_H_
