#include "rendezvous/client/grpc_client.h"

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
#include "absl/strings/str_replace.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/client/client_stream.h"
#include "rendezvous/client/connect_probe.h"
#include "rendezvous/client/reconnector.h"
#include "rendezvous/client/resolver.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

static_assert(Reconnector::kConnectTimeout <= ClientStream::kConnectTimeout);

// So long certificates may be about to be renewed, here or there.
constexpr absl::Duration kTlsPatience = absl::Seconds(10);

// gRPC's name of an address: "ipv4:10.0.0.1:29400".
std::string GrpcTarget(const std::string& address) {
  if (!absl::StartsWith(address, "[")) return absl::StrCat("ipv4:", address);
  return absl::StrCat("ipv6:", absl::StrReplaceAll(address, {{"%", "%25"}}));  // % begins a zone
}

// Carries out what a Reconnector decides. One thread runs the completion queue and calls the handler; Send, Reset and
// Close may come from any other.
class GrpcClient final : public Client {
 public:
  GrpcClient(const Endpoint& server, Handler handler, absl::Duration patience, const Credentials& credentials)
      : server_(server),
        security_(credentials, server.host),
        handler_(std::move(handler)),
        core_({server.host, server.ToString(), patience, std::random_device()()}) {
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
  // For what another thread has to tell the core.
  void Post(std::function<void()> what) {
    MutexLock lock(&mutex_);
    if (closed_) return;  // the queue may be gone
    PostTo(&queue_, std::move(what));
  }

  // What was sent is sent, unless `at_once`; then the streams end, and nothing more is told.
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

  // What follows, but Send, Reset and Close, runs on the completion queue's thread. A call of the core is followed by
  // its effects, with no lock held.
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
    if (armed_ || closed_ || deadline == SteadyTime::InfiniteFuture()) return;
    armed_ = true;
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

  void Do(reconnect::Resolve) {
    if (const std::optional<std::string> literal = Resolver::Literal(server_)) {
      const std::vector<std::string> targets = {Resolver::AddressOf(*literal)};
      return Step([&](Reconnector* core, auto* effects) { core->OnResolved(targets, SteadyNow(), effects); });
    }
    resolver_.Resolve(server_, [this](Resolver::Result result) {
      if (result.ok()) {
        for (std::string& name : *result) name = Resolver::AddressOf(name);
      }
      // Moved: what is shared with this thread would be released on both.
      Post([this, result = std::move(result)] {
        Step([&](Reconnector* core, auto* effects) { core->OnResolved(result, SteadyNow(), effects); });
      });
    });
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

  // False: the stream does not wait for its authorization, or no longer.
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
        GrpcTarget(connect.target), &security_, authorization, &queue_,
        ClientStream::Events{
            [this, number] { Step([&](Reconnector* core, auto* effects) { core->OnOpen(number, effects); }); },
            on_message,
            [this, number](StreamProgress progress, const absl::Status& status) { OnOver(number, progress, status); }});
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      streams_.emplace(number, stream);
    }
    stream->Connect(connect.timeout);
  }

  void OnOver(uint64_t number, StreamProgress progress, absl::Status status) {
    {
      MutexLock lock(&mutex_);
      streams_.erase(number);
      if (streams_.empty()) stream_over_.NotifyAll();
      if (closed_) return;
    }
    if (TlsFailsForGood(progress, status)) {
      progress = StreamProgress::kOpen;  // the server was reached, and means this launcher to stay away
      status = absl::UnauthenticatedError(DescribeTlsFailure(status));
    }
    Step([&](Reconnector* core, auto* effects) { core->OnEnd(number, progress, status, SteadyNow(), effects); });
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
    probe_.Start(probe.target, probe.timeout, [this, number = probe.probe](bool refused, SteadyTime began) {
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

  void Do(reconnect::Tell tell) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
    }
    handler_(std::move(tell.event));
  }

  const Endpoint server_;
  ClientSecurity security_;
  const Handler handler_;
  grpc::CompletionQueue queue_;

  // Of the completion queue's thread: handshakes have failed since, and nothing else has happened.
  std::optional<SteadyTime> tls_fails_since_;

  Mutex mutex_;
  Reconnector core_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;  // retry_alarm_ is set and has not fired
  // Those of which the end has not come, by the core's number.
  std::map<uint64_t, std::shared_ptr<ClientStream>> streams_ ABSL_GUARDED_BY(mutex_);
  CondVar stream_over_;
  std::set<uint64_t> authorizing_ ABSL_GUARDED_BY(mutex_);  // streams that wait for what to show to the server
  grpc::Alarm retry_alarm_;
  MemberCompletion<GrpcClient, &GrpcClient::OnRetry> retry_tag_{this};
  Resolver resolver_;  // these after all that their callbacks use
  ConnectProbe probe_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Client> NewGrpcClient(const Endpoint& server, Client::Handler handler, absl::Duration patience,
                                      const Credentials& credentials) {
  QuietGrpc();
  return std::make_unique<GrpcClient>(server, std::move(handler), patience, credentials);
}

}  // namespace ddprun::rendezvous
