#include "worker_runtime/process_group/gloo_backend.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/cancellable.h"
#include "worker_runtime/process_group/interruptible_backend.h"
#include "worker_runtime/process_group/tcp_sockets.h"

namespace ddprun {
namespace {

std::set<std::string> Interfaces() {
  std::set<std::string> names;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) names.insert(entry->ifa_name);
  freeifaddrs(list);
  return names;
}

// Gloo waits for a peer's connection for this multiple of its timeout.
constexpr int kGlooWaits = 5;

// Sockets that listen on a specific address; Gloo never listens on all addresses.
std::set<std::string> ListeningAddresses() {
  std::set<std::string> addresses;
  for (const TcpSocket& socket : FindTcpSockets([](const TcpSocket& s) { return s.listening; })) {
    const std::string host = HostOfAddress(socket.local);
    if (host != "0.0.0.0" && host != "::") addresses.insert(socket.local);
  }
  return addresses;
}

using Connections = InterruptibleBackend::Connections;

// Current state of the connections that existed when all ranks were connected.
Connections LookAt(const std::vector<TcpSocket>& connected) {
  const auto is_ours = [&](const TcpSocket& s) { return absl::c_linear_search(connected, s); };
  const TcpTraffic traffic = MeasureTcpSockets(is_ours);
  Connections seen{.open = static_cast<int>(traffic.sockets.size()), .bytes = traffic.bytes};
  for (const TcpSocket& socket : connected) {
    if (absl::c_linear_search(traffic.sockets, socket)) continue;
    seen.lost.push_back(absl::StrCat("[", HostOfAddress(socket.remote), "]:", PortOfAddress(socket.remote)));
  }
  return seen;
}

}  // namespace

GlooBackend::GlooBackend(std::shared_ptr<gloo::transport::Device> device, std::string address)
    : device_(std::move(device)), address_(std::move(address)) {}

GlooBackend::~GlooBackend() = default;

absl::StatusOr<std::unique_ptr<GlooBackend>> GlooBackend::Listen(const std::string& where) {
  // Gloo does not report the port on which a device listens: it is that of the socket that did not exist before.
  static Mutex* const mutex = new Mutex;
  MutexLock lock(mutex);
  const std::set<std::string> before = ListeningAddresses();
  std::shared_ptr<gloo::transport::Device> device;
  absl::Status status = TorchTry("", [&] {
    device = if_nametoindex(where.c_str()) != 0 ? c10d::ProcessGroupGloo::createDeviceForInterface(where)
                                                : c10d::ProcessGroupGloo::createDeviceForHostname(where);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("gloo can't listen on \"", where, "\" (", status.message(),
                                                   "); it must be an address of this host or one of its interfaces, ",
                                                   absl::StrJoin(Interfaces(), ", ")));
  }
  for (const std::string& address : ListeningAddresses()) {
    if (!before.contains(address)) return std::unique_ptr<GlooBackend>(new GlooBackend(std::move(device), address));
  }
  return absl::InternalError(absl::StrCat("gloo does not listen on \"", where, "\""));
}

absl::Status GlooBackend::Connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, const Peers& peers,
                                  absl::Duration timeout, bool with_checker, const std::stop_token& cancel) {
  peers_ = peers;
  const auto is_ours = [address = address_, peers](const TcpSocket& s) {
    return !s.listening && (s.local == address || peers.Listens(s.remote));
  };
  struct Connected {
    c10::intrusive_ptr<InterruptibleBackend> backend, checker;
  };
  const auto connected = std::make_shared<Connected>();
  absl::Status status = RunCancellable(cancel, [=, size = peers.size(), device = device_] {
    const auto connect = [&](const std::string& name) {
      const absl::Duration connect_timeout = std::min(timeout, kConnectTimeout) / kGlooWaits;
      auto options = c10d::ProcessGroupGloo::Options::create(
          std::max(absl::ToChronoMilliseconds(connect_timeout), std::chrono::milliseconds(1)));
      options->devices.push_back(device);
      auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store), rank,
                                                              size, options);
      gloo->setTimeout(absl::ToChronoMilliseconds(timeout));
      return c10::make_intrusive<InterruptibleBackend>(std::move(gloo),
                                                       [sockets = FindTcpSockets(is_ours)] { return LookAt(sockets); });
    };
    return TorchTry("", [&] {
      connected->backend = connect("gloo");
      if (with_checker) connected->checker = connect("checker");
      KeepAliveTcpSockets(is_ours);
      return absl::OkStatus();
    });
  });
  if (absl::IsCancelled(status)) {
    ShutDownTcpSockets(is_ours);  // peers must not wait for the thread that is left behind
    return status;
  }
  backend_ = std::move(connected->backend);
  checker_ = std::move(connected->checker);
  return status;
}

std::vector<int> GlooBackend::Ports() const {
  std::vector<int> ports;
  for (const TcpSocket& socket : FindTcpSockets([this](const TcpSocket& s) { return peers_.Listens(s.remote); })) {
    ports.push_back(PortOfAddress(socket.local));
  }
  return ports;
}

void GlooBackend::CutOff() const {
  ShutDownTcpSockets(
      [this](const TcpSocket& s) { return !s.listening && (s.local == address_ || peers_.Listens(s.remote)); });
  for (const auto& backend : {backend_, checker_}) {
    if (backend != nullptr) backend->Interrupt("this rank has left the group");
  }
}

c10::intrusive_ptr<c10d::Backend> GlooBackend::backend() const { return backend_; }
c10::intrusive_ptr<c10d::Backend> GlooBackend::checker() const { return checker_; }

}  // namespace ddprun
