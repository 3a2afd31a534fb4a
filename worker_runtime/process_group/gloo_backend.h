#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_GLOO_BACKEND_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_GLOO_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/process_group/peers.h"

namespace c10d {
class ProcessGroupGloo;
class Store;
}  // namespace c10d

namespace gloo::transport {
class Device;
}  // namespace gloo::transport

namespace ddprun {

// One rank's end of a group over Gloo, which can be cut off: Gloo itself has no abort, but its sockets are known by
// their addresses, as every group listens on a port of its own.
//
// Threads: CutOff may be called from any thread while the object lives; the rest belongs to one.
class GlooBackend {
 public:
  // When all ranks have come, connecting takes milliseconds; only one that dies meanwhile makes the others wait.
  static constexpr absl::Duration kConnectTimeout = absl::Seconds(60);

  // Listens on `where`: the name of an interface, or an address or name of this host.
  // Errors: InvalidArgument if this host has neither.
  static absl::StatusOr<std::unique_ptr<GlooBackend>> Listen(const std::string& where);
  ~GlooBackend();
  GlooBackend(const GlooBackend&) = delete;
  GlooBackend& operator=(const GlooBackend&) = delete;

  // On which it listens, "ip:port".
  const std::string& address() const { return address_; }

  // Connects to all peers, which must all have come. Operations take `timeout`; `with_checker` is the same on all. Call
  // once.
  absl::Status Connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, const Peers& peers,
                       absl::Duration timeout, bool with_checker);

  // Never null after Connect.
  const c10::intrusive_ptr<c10d::ProcessGroupGloo>& backend() const { return backend_; }

  // Further connections among the same ranks, by which a c10d::ProcessGroupWrapper compares what they do.
  const c10::intrusive_ptr<c10d::ProcessGroupGloo>& checker() const { return checker_; }

  // From which this rank has connected to others.
  std::vector<int> Ports() const;

  // Breaks all connections: whoever waits in an operation, here or at a peer, gets an exception at once.
  void CutOff() const;

 private:
  GlooBackend(std::shared_ptr<gloo::transport::Device> device, std::string address);

  std::shared_ptr<gloo::transport::Device> device_;
  const std::string address_;
  Peers peers_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> backend_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> checker_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_GLOO_BACKEND_H_
