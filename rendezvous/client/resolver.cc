#include "rendezvous/client/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/mutex.h"

namespace ddprun::rendezvous {
namespace {

std::string GrpcName(bool ipv6, const std::string& host, int port) {
  if (!ipv6) return absl::StrCat("ipv4:", host, ":", port);
  return absl::StrCat("ipv6:[", absl::StrReplaceAll(host, {{"%", "%25"}}), "]:", port);  // '%' starts a zone
}

Resolver::Result LookUp(const Endpoint& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (failure != 0) return absl::NotFoundError(gai_strerror(failure));
  std::vector<std::string> names;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    names.push_back(GrpcName(a->ai_family == AF_INET6, host, address.port));
  }
  freeaddrinfo(found);
  if (names.empty()) return absl::NotFoundError("the name resolves to no address");
  return names;
}

}  // namespace

struct Resolver::Shared {
  Mutex mutex;
  Done done ABSL_GUARDED_BY(mutex);
};

Resolver::Resolver() : shared_(std::make_shared<Shared>()) {}

Resolver::~Resolver() {
  MutexLock lock(&shared_->mutex);
  shared_->done = nullptr;
}

std::optional<std::string> Resolver::Literal(const Endpoint& address) {
  in_addr v4;
  in6_addr v6;
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return GrpcName(false, address.host, address.port);
  if (inet_pton(AF_INET6, address.host.c_str(), &v6) == 1) return GrpcName(true, address.host, address.port);
  return std::nullopt;
}

std::string Resolver::AddressOf(const std::string& grpc_name) {
  return absl::StrReplaceAll(grpc_name.substr(grpc_name.find(':') + 1), {{"%25", "%"}});
}

void Resolver::Resolve(const Endpoint& address, Done done) {
  {
    MutexLock lock(&shared_->mutex);
    shared_->done = std::move(done);
  }
  // Detached, because a lookup can't be cancelled and may take half a minute.
  std::thread([shared = shared_, address] {
    Result result = LookUp(address);
    // Called under the lock, so that the destructor waits for a call in progress.
    MutexLock lock(&shared->mutex);
    if (shared->done != nullptr) std::exchange(shared->done, nullptr)(std::move(result));
  }).detach();
}

}  // namespace ddprun::rendezvous
