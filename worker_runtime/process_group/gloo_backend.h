#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_GLOO_BACKEND_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_GLOO_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/process_group/peers.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace gloo::transport {
class Device;
}  // namespace gloo::transport

namespace ddprun {

class InterruptibleBackend;

// A rank's endpoint of a Gloo group that can be aborted. Gloo has no abort, but its sockets can be found by their
// addresses, because every group listens on its own port.
//
// Threads: CutOff may be called from any thread while the object exists; everything else from one thread.
class GlooBackend {
 public:
  // How long a rank waits for each of its peers to connect. Once all ranks have joined, connecting takes milliseconds;
  // the full time passes only if a rank dies in the meantime.
  static constexpr absl::Duration kConnectTimeout = absl::Seconds(60);

  // Listens on `where`: an interface name, or an address or name of this host.
  // Errors: InvalidArgument if it is neither.
  static absl::StatusOr<std::unique_ptr<GlooBackend>> Listen(const std::string& where);
  ~GlooBackend();
  GlooBackend(const GlooBackend&) = delete;
  GlooBackend& operator=(const GlooBackend&) = delete;

  // The listening address, "ip:port".
  const std::string& address() const { return address_; }

  // Connects to all peers, which must have joined. `timeout` applies to operations; `with_checker` must be the same on
  // all ranks. Call once. Gloo can't be interrupted while it connects: if `cancel` is stopped, returns Cancelled at
  // once and leaves a thread with Gloo's objects behind, which ends with Gloo's wait.
  absl::Status Connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, const Peers& peers,
                       absl::Duration timeout, bool with_checker, const std::stop_token& cancel = {});

  // Never null after Connect.
  c10::intrusive_ptr<c10d::Backend> backend() const;

  // Additional connections between the same ranks, over which a c10d::ProcessGroupWrapper compares their collectives.
  c10::intrusive_ptr<c10d::Backend> checker() const;

  // Local ports of this rank's connections to others.
  std::vector<int> Ports() const;

  // Breaks all connections: operations in progress, here and on peers, throw at once, or after a moment if the break
  // comes in the middle of a message (see InterruptibleBackend).
  void CutOff() const;

 private:
  GlooBackend(std::shared_ptr<gloo::transport::Device> device, std::string address);

  std::shared_ptr<gloo::transport::Device> device_;
  const std::string address_;
  Peers peers_;
  c10::intrusive_ptr<InterruptibleBackend> backend_;
  c10::intrusive_ptr<InterruptibleBackend> checker_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_GLOO_BACKEND_H_
