#include "rendezvous/client/grpc_client.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/endpoint.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/client/client_stream.h"
#include "rendezvous/client/reconnector.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

static_assert(Reconnector::kConnectTimeout <= ClientStream::kConnectTimeout);

// TLS failures are retried for this long, because certificates may be about to be renewed on either side.
constexpr absl::Duration kTlsPatience = absl::Seconds(10);

// gRPC's name of an address: "ipv4:10.0.0.1:29400".
std::string GrpcTarget(const std::string& address) {
  if (!absl::StartsWith(address, "[")) return absl::StrCat("ipv4:", address);
  return absl::StrCat("ipv6:", absl::StrReplaceAll(address, {{"%", "%25"}}));  // '%' starts a zone
}

// Waits for the pending connection on the socket. Returns its error: 0 if it succeeded, EINPROGRESS at the deadline.
int AwaitConnection(int fd, SteadyTime deadline) {
  while (true) {
    pollfd poll_fd{fd, POLLOUT, 0};
    const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
    const int ready =
        poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return EINPROGRESS;
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }
}

std::string HostsOf(const std::vector<Endpoint>& servers) {
  return absl::StrJoin(servers, ",", [](std::string* out, const Endpoint& server) { *out += server.host; });
}

std::string AddressesOf(const std::vector<Endpoint>& servers) {
  return absl::StrJoin(servers, ",", [](std::string* out, const Endpoint& server) { *out += server.ToString(); });
}

// Runs blocking calls on threads of their own, since they can't be cancelled. If this object is destroyed in the
// meantime, results are dropped.
class DetachedCalls {
 public:
  ~DetachedCalls() {
    MutexLock lock(&shared_->mutex);
    shared_->over = true;
  }

  // Runs `call` on a new thread, and then `done` with its result.
  template <typename Result>
  void Start(std::function<Result()> call, std::function<void(Result)> done) {
    std::thread([shared = shared_, call = std::move(call), done = std::move(done)] {
      Result result = call();
      MutexLock lock(&shared->mutex);  // so that the destructor waits for a `done` that runs
      if (!shared->over) done(std::move(result));
    }).detach();
  }

 private:
  struct Shared {
    Mutex mutex;
    bool over ABSL_GUARDED_BY(mutex) = false;
  };
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// Carries out the effects of a Reconnector. One thread runs the completion queue and calls the handler; Send, Reset and
// Close may be called by any other thread.
class GrpcClient final : public Client {
 public:
  GrpcClient(const std::vector<Endpoint>& servers, Handler handler, absl::Duration patience,
             const Credentials& credentials)
      : servers_(servers),
        security_(credentials, servers.front().host),
        handler_(std::move(handler)),
        core_({HostsOf(servers), AddressesOf(servers), patience, std::random_device()(), servers.size() > 1}) {
    Reconnector::Effects effects;
    core_.Start(&effects);
    CarryOut(std::move(effects));
    thread_ = std::thread([this] { RunCompletions(&queue_); });
  }

  ~GrpcClient() override {
    End(true);
    security_.Stop();
    {
      MutexLock lock(&mutex_);
      while (!streams_.empty()) stream_over_.Wait(&mutex_);
      retry_alarm_.Cancel();
    }
    queue_.Shutdown();
    thread_.join();
  }

  void Send(LauncherMessage message) override {
    std::shared_ptr<ClientStream> stream;
    {
      MutexLock lock(&mutex_);
      if (const std::optional<uint64_t> number = core_.Admit(message)) stream = FindLocked(*number);
    }
    if (stream != nullptr) stream->Send(message);
  }

  void Reset() override {
    MutexLock lock(&mutex_);
    core_.Reset(SteadyNow());
    ArmLocked();
  }

  void Close() override { End(false); }

 private:
  // Runs `what` on the completion queue's thread.
  void Post(std::function<void()> what) {
    MutexLock lock(&mutex_);
    if (closed_) return;  // the queue may be shut down
    PostTo(&queue_, std::move(what));
  }

  // Delivers sent messages unless `at_once`, then ends the streams. No more events follow.
  void End(bool at_once) {
    Reconnector::Effects effects;
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      closed_ = true;
      core_.Close(at_once, &effects);
    }
    CarryOut(std::move(effects));
  }

  // The functions below run on the completion queue's thread. Each call of the core is followed by its effects, with no
  // lock held.
  template <typename Call>
  void Step(Call call) {
    Reconnector::Effects effects;
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      call(CoreLocked(), &effects);
      ArmLocked();
    }
    CarryOut(std::move(effects));
  }
  Reconnector* CoreLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return &core_; }

  void ArmLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const SteadyTime deadline = core_.NextDeadline();
    if (closed_ || deadline == SteadyTime::InfiniteFuture()) return;
    if (armed_) {
      if (deadline < armed_for_) retry_alarm_.Cancel();  // OnRetry sets it again
      return;
    }
    armed_ = true;
    armed_for_ = deadline;
    retry_alarm_.Set(&queue_, AfterNow(deadline - SteadyNow()), static_cast<Completion*>(&retry_tag_));
  }

  void OnRetry(bool) {
    {
      MutexLock lock(&mutex_);
      armed_ = false;
    }
    Step([](Reconnector* core, auto* effects) { core->OnDeadline(SteadyNow(), effects); });
  }

  std::shared_ptr<ClientStream> FindLocked(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = streams_.find(number);
    return found == streams_.end() ? nullptr : found->second;
  }
  std::shared_ptr<ClientStream> Find(uint64_t number) {
    MutexLock lock(&mutex_);
    return FindLocked(number);
  }

  void CarryOut(Reconnector::Effects effects) {
    for (ReconnectEffect& effect : effects) {
      std::visit([this](auto& e) { Do(std::move(e)); }, effect);
    }
  }

  // Lookup of several names, one after another.
  struct LookUp {
    std::vector<Endpoint> names;
    size_t next = 0;
    std::vector<ServerAddress> found;
    std::string failure;  // error of the first name without an address
  };

  void Do(reconnect::Resolve resolve) {
    auto look_up = std::make_shared<LookUp>(LookUp{.names = servers_});
    const absl::StatusOr<Endpoint> leader = ParseEndpoint(resolve.leader);
    if (leader.ok() && std::find(servers_.begin(), servers_.end(), *leader) == servers_.end()) {
      look_up->names.push_back(*leader);
    }
    LookUpNext(look_up);
  }

  void LookUpNext(const std::shared_ptr<LookUp>& look_up) {
    while (look_up->next < look_up->names.size()) {
      const Endpoint& name = look_up->names[look_up->next++];
      if (IsAddress(name.host)) {
        look_up->found.push_back({name.ToString(), name.host});
        continue;
      }
      using Addresses = absl::StatusOr<std::vector<std::string>>;
      detached_.Start<Addresses>([name] { return LookUpAddresses(name); },
                                 [this, look_up](Addresses result) {
                                   Post([this, look_up, result = std::move(result)] { OnLookedUp(look_up, result); });
                                 });
      return;
    }
    absl::StatusOr<std::vector<ServerAddress>> addresses = look_up->found;
    if (look_up->found.empty()) addresses = absl::NotFoundError(look_up->failure);
    Step([&](Reconnector* core, auto* effects) { core->OnResolved(addresses, SteadyNow(), effects); });
  }

  void OnLookedUp(const std::shared_ptr<LookUp>& look_up, const absl::StatusOr<std::vector<std::string>>& result) {
    if (result.ok()) {
      const std::string& host = look_up->names[look_up->next - 1].host;
      for (const std::string& address : *result) look_up->found.push_back({address, host});
    } else if (look_up->failure.empty()) {
      look_up->failure = std::string(result.status().message());
    }
    LookUpNext(look_up);
  }

  void Do(reconnect::Connect connect) {
    if (const std::optional<std::string> authorization = security_.Authorization()) {
      return Connect(connect, *authorization);
    }
    {
      MutexLock lock(&mutex_);
      authorizing_.insert(connect.stream);
    }
    security_.AskForAuthorization([this, connect](absl::StatusOr<std::string> authorization) {
      Post([this, connect, authorization = std::move(authorization)] {
        if (!StopAuthorizing(connect.stream)) return;
        if (authorization.ok()) return Connect(connect, *authorization);
        OnOver(connect.stream, StreamProgress::kNone, authorization.status());
      });
    });
  }

  // Returns false if the stream is not, or no longer, waiting for its authorization.
  bool StopAuthorizing(uint64_t stream) {
    MutexLock lock(&mutex_);
    return authorizing_.erase(stream) > 0;
  }

  void Connect(const reconnect::Connect& connect, const std::string& authorization) {
    const uint64_t number = connect.stream;
    const auto on_message = [this, number](ServerMessage message) {
      Step([&](Reconnector* core, auto* effects) { core->OnMessage(number, std::move(message), effects); });
    };
    const auto stream = std::make_shared<ClientStream>(
        GrpcTarget(connect.target), connect.host, &security_, authorization, &queue_,
        ClientStream::Events{
            [this, number](int64_t epoch) {
              Step([&](Reconnector* core, auto* effects) { core->OnOpen(number, epoch, effects); });
            },
            on_message,
            [this, number](StreamProgress progress, const absl::Status& status, const FollowerAnswer& answer) {
              OnOver(number, progress, status, answer);
            }});
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      streams_.emplace(number, stream);
    }
    stream->Connect(connect.timeout);
  }

  void OnOver(uint64_t number, StreamProgress progress, absl::Status status, const FollowerAnswer& answer = {}) {
    {
      MutexLock lock(&mutex_);
      streams_.erase(number);
      if (streams_.empty()) stream_over_.NotifyAll();
      if (closed_) return;
    }
    if (TlsFailsForGood(progress, status)) {
      progress = StreamProgress::kOpen;  // the server was reached and refused this launcher
      status = absl::UnauthenticatedError(DescribeTlsFailure(status));
    }
    Step([&](Reconnector* core, auto* effects) {
      core->OnEnd(number, {progress, status, answer}, SteadyNow(), effects);
    });
  }

  bool TlsFailsForGood(StreamProgress progress, const absl::Status& status) {
    if (!security_.has_tls() || !IsTlsFailure(progress, status)) {
      tls_fails_since_.reset();
      return false;
    }
    if (!tls_fails_since_) tls_fails_since_ = SteadyNow();
    return SteadyNow() - *tls_fails_since_ > kTlsPatience;
  }

  void Do(reconnect::Probe probe) {
    const SteadyTime began = SteadyNow();
    detached_.Start<bool>(
        [target = probe.target, deadline = began + probe.timeout] { return IsRefused(target, deadline); },
        [this, number = probe.probe, began](bool refused) {
          const std::optional<SteadyTime> at = refused ? std::make_optional(began) : std::nullopt;
          Post([this, number, at] {
            Step([&](Reconnector* core, auto* effects) { core->OnProbed(number, at, SteadyNow(), effects); });
          });
        });
  }

  void Do(reconnect::Close close) {
    if (StopAuthorizing(close.stream)) return OnNeverStarted(close.stream);
    if (const auto stream = Find(close.stream)) stream->Close();
  }
  void Do(reconnect::Abandon abandon) {
    if (StopAuthorizing(abandon.stream)) return OnNeverStarted(abandon.stream);
    if (const auto stream = Find(abandon.stream)) stream->Abandon();
  }
  void OnNeverStarted(uint64_t stream) {
    OnOver(stream, StreamProgress::kTimedOut, absl::UnavailableError("munge did not answer in time"));
  }

  void Do(reconnect::Report report) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
    }
    handler_(std::move(report.event));
  }

  const std::vector<Endpoint> servers_;
  ClientSecurity security_;
  const Handler handler_;
  grpc::CompletionQueue queue_;

  // Used only by the completion queue's thread: since then there have been TLS failures and nothing else.
  std::optional<SteadyTime> tls_fails_since_;

  Mutex mutex_;
  Reconnector core_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;  // retry_alarm_ is set and has not fired
  SteadyTime armed_for_ ABSL_GUARDED_BY(mutex_);
  // Streams that have not ended, by the core's number.
  std::map<uint64_t, std::shared_ptr<ClientStream>> streams_ ABSL_GUARDED_BY(mutex_);
  CondVar stream_over_;
  std::set<uint64_t> authorizing_ ABSL_GUARDED_BY(mutex_);  // streams waiting for their authorization
  grpc::Alarm retry_alarm_;
  MemberCompletion<GrpcClient, &GrpcClient::OnRetry> retry_tag_{this};
  DetachedCalls detached_;  // after all that its calls use
  std::thread thread_;
};

}  // namespace

bool IsAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

absl::StatusOr<std::vector<std::string>> LookUpAddresses(const Endpoint& server) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(server.host.c_str(), nullptr, &hints, &found);
  if (failure != 0) return absl::NotFoundError(gai_strerror(failure));
  std::vector<std::string> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    addresses.push_back(Endpoint{host, server.port}.ToString());
  }
  freeaddrinfo(found);
  if (addresses.empty()) return absl::NotFoundError("the name resolves to no address");
  return addresses;
}

bool IsRefused(const std::string& address, SteadyTime deadline) {
  const absl::StatusOr<Endpoint> parsed = ParseEndpoint(address);
  if (!parsed.ok()) return false;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(parsed->host.c_str(), absl::StrCat(parsed->port).c_str(), &hints, &found) != 0) return false;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = EINVAL;
  if (fd >= 0) {
    error = connect(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = AwaitConnection(fd, deadline);
    close(fd);
  }
  freeaddrinfo(found);
  return error == ECONNREFUSED;
}

std::unique_ptr<Client> NewGrpcClient(const std::vector<Endpoint>& servers, Client::Handler handler,
                                      absl::Duration patience, const Credentials& credentials) {
  (void)PrepareGrpc();
  return std::make_unique<GrpcClient>(servers, std::move(handler), patience, credentials);
}

std::unique_ptr<Client> NewGrpcClient(const Endpoint& server, Client::Handler handler, absl::Duration patience,
                                      const Credentials& credentials) {
  return NewGrpcClient(std::vector<Endpoint>{server}, std::move(handler), patience, credentials);
}

}  // namespace ddprun::rendezvous
