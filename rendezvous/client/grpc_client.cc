#include "rendezvous/client/grpc_client.h"

#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/mutex.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/client_stream.h"
#include "rendezvous/client/join_first.h"
#include "rendezvous/client/resolver.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

// One thread runs the completion queue and calls the handler:
//
//   kResolving ---> kConnecting ---> kOpen          every state -> kOver: Close, or the server refused
//       ^              |   ^           |
//       |   (retry)    v   +-----------+ (a stream broke that worked)
//       +----------- kPausing
class GrpcClient final : public Client {
 public:
  GrpcClient(const HostPort& server, Handler handler)
      : server_(server), address_(ToString(server)), handler_(std::move(handler)), backoff_(std::random_device()()) {
    Begin();
    thread_ = std::thread([this] { RunCompletions(&queue_); });
  }

  ~GrpcClient() override {
    std::shared_ptr<ClientStream> cut;
    {
      MutexLock lock(&mutex_);
      if (!closed_) cut = stream_;
      closed_ = true;
    }
    if (cut != nullptr) cut->Abandon();
    {
      MutexLock lock(&mutex_);
      while (state_ == State::kConnecting || state_ == State::kOpen) stream_over_.Wait(&mutex_);
      retry_timer_.Cancel();
      resolved_alarm_.Cancel();
    }
    queue_.Shutdown();
    thread_.join();
  }

  void Send(LauncherMessage message) override {
    std::shared_ptr<ClientStream> stream;
    {
      MutexLock lock(&mutex_);
      if (state_ == State::kOpen && !closed_ && join_first_.Admits(message)) stream = stream_;
    }
    if (stream != nullptr) stream->Send(message);
  }

  void Reset() override {
    std::shared_ptr<ClientStream> stream;
    {
      MutexLock lock(&mutex_);
      if (state_ == State::kOpen && !closed_) stream = stream_;
    }
    if (stream != nullptr) stream->Abandon();
  }

  void Close() override {
    std::shared_ptr<ClientStream> stream;
    {
      MutexLock lock(&mutex_);
      if (!closed_) stream = stream_;
      closed_ = true;
    }
    if (stream != nullptr) stream->Close();
  }

 private:
  enum class State { kResolving, kPausing, kConnecting, kOpen, kOver };

  // Goes over all addresses of the server, one after the other. Not from the handler.
  void Begin() {
    if (std::optional<std::string> literal = Resolver::Literal(server_)) {
      TryAddresses({*std::move(literal)});
      return;
    }
    {
      MutexLock lock(&mutex_);
      if (closed_) return EndLocked();
      state_ = State::kResolving;
    }
    resolver_.Resolve(server_, [this](Resolver::Result result) {
      MutexLock lock(&mutex_);
      if (closed_) return;  // the queue may be gone
      resolved_ = std::move(result);
      // Carries on with the completion queue's thread.
      resolved_alarm_.Set(&queue_, AfterNow(absl::ZeroDuration()), static_cast<Completion*>(&resolved_tag_));
    });
  }

  void OnResolved(bool) {
    Resolver::Result result;
    {
      MutexLock lock(&mutex_);
      result = std::exchange(resolved_, absl::UnavailableError(""));
    }
    if (result.ok()) {
      TryAddresses(*std::move(result));
    } else {
      RetryAfter({absl::StrCat(
          "tried ",
          DescribeEnd(server_.host, StreamProgress::kNone, absl::UnavailableError(result.status().message())).reason)});
    }
  }

  void TryAddresses(std::vector<std::string> targets) {
    targets_ = std::move(targets);
    next_target_ = 0;
    tried_.clear();
    TryNextAddress();
  }

  void TryNextAddress() {
    const std::string& target = targets_[next_target_++];
    auto stream = std::make_shared<ClientStream>(
        target, &queue_,
        ClientStream::Events{[this] { OnOpen(); },
                             [this](ServerMessage message) { OnServerMessage(std::move(message)); },
                             [this](StreamProgress progress, absl::Status status) { OnOver(progress, status); }});
    {
      MutexLock lock(&mutex_);
      if (closed_) return EndLocked();
      state_ = State::kConnecting;
      stream_ = stream;
      join_first_.OnNewStream();
    }
    stream->Connect();
  }

  void OnOpen() {
    {
      MutexLock lock(&mutex_);
      state_ = State::kOpen;
    }
    Emit(Connected{});
  }

  void OnServerMessage(ServerMessage message) {
    backoff_.Reset();
    Emit(std::move(message));
  }

  void OnOver(StreamProgress progress, const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      stream_ = nullptr;
      if (closed_) return EndLocked();
      state_ = State::kPausing;
    }
    const bool failed = progress == StreamProgress::kNone || progress == StreamProgress::kTimedOut;
    if (!failed) return RetryAfter(DescribeEnd(address_, progress, status));
    absl::StrAppend(&tried_, tried_.empty() ? "tried " : "; ",
                    DescribeEnd(Resolver::AddressOf(targets_[next_target_ - 1]), progress, status).reason);
    if (next_target_ < targets_.size()) {
      TryNextAddress();
    } else {
      RetryAfter({tried_});
    }
  }

  void RetryAfter(Disconnected end) {
    const bool permanent = end.permanent;
    Emit(std::move(end));
    const absl::Duration wait = permanent ? absl::InfiniteDuration() : backoff_.Next();
    {
      MutexLock lock(&mutex_);
      if (closed_ || permanent) return EndLocked();
      if (wait > absl::ZeroDuration()) {
        state_ = State::kPausing;
        retry_timer_.Set(&queue_, AfterNow(wait), static_cast<Completion*>(&retry_tag_));
        return;
      }
    }
    TryAddresses(std::move(targets_));
  }

  void OnRetry(bool) { Begin(); }

  void EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    state_ = State::kOver;
    stream_over_.NotifyAll();
  }

  void Emit(ClientEvent event) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
    }
    handler_(std::move(event));
  }

  const HostPort server_;
  const std::string address_;  // of the server, for people
  const Handler handler_;
  grpc::CompletionQueue queue_;

  // Of the completion queue's thread.
  Backoff backoff_;
  std::vector<std::string> targets_;
  size_t next_target_ = 0;
  std::string tried_;  // each of targets_ that failed since the first, and why

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kResolving;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ClientStream> stream_ ABSL_GUARDED_BY(mutex_);
  JoinFirst join_first_ ABSL_GUARDED_BY(mutex_);
  Resolver::Result resolved_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("");
  CondVar stream_over_;
  grpc::Alarm retry_timer_;
  grpc::Alarm resolved_alarm_;
  MemberCompletion<GrpcClient, &GrpcClient::OnRetry> retry_tag_{this};
  MemberCompletion<GrpcClient, &GrpcClient::OnResolved> resolved_tag_{this};
  Resolver resolver_;  // after all that its callback uses
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Client> NewGrpcClient(const HostPort& server, Client::Handler handler) {
  QuietGrpc();
  return std::make_unique<GrpcClient>(server, std::move(handler));
}

}  // namespace ddprun::rendezvous
