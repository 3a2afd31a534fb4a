#include "rendezvous/client/grpc_client.h"

#include <algorithm>
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

// So long after a stream was lost the server's name still stands for the same addresses: the way to who would say
// otherwise may be cut as well.
constexpr absl::Duration kAddressesStand = absl::Seconds(10);

// One thread runs the completion queue and calls the handler:
//
//   kResolving ---> kConnecting ---> kOpen          every state -> kOver: Close, or the server refused
//       ^              |   ^           |
//       |   (retry)    v   +-----------+ (a stream broke that worked)
//       +----------- kPausing <--------+ (Reset)
class GrpcClient final : public Client {
 public:
  GrpcClient(const HostPort& server, Handler handler, absl::Duration patience)
      : server_(server),
        address_(ToString(server)),
        handler_(std::move(handler)),
        patience_(patience),
        backoff_(std::random_device()()) {
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
    EndSilentStreams();
    {
      MutexLock lock(&mutex_);
      while (live_streams_ > 0) stream_over_.Wait(&mutex_);
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
    MutexLock lock(&mutex_);
    if (state_ != State::kOpen || closed_) return;
    silent_.push_back(std::move(stream_));
    ++stream_number_;
    state_ = State::kPausing;
    was_reset_ = true;
    retry_timer_.Set(&queue_, AfterNow(absl::ZeroDuration()), static_cast<Completion*>(&retry_tag_));
  }

  void Close() override {
    std::shared_ptr<ClientStream> stream;
    {
      MutexLock lock(&mutex_);
      if (!closed_) stream = stream_;
      closed_ = true;
    }
    if (stream != nullptr) stream->Close();
    EndSilentStreams();
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
    refused_.reset();
    TryNextAddress();
  }

  void TryNextAddress() {
    const std::string& target = targets_[next_target_++];
    const uint64_t number = ++streams_;
    auto stream = std::make_shared<ClientStream>(
        target, &queue_,
        ClientStream::Events{
            [this, number] { OnOpen(number); },
            [this, number](ServerMessage message) { OnServerMessage(number, std::move(message)); },
            [this, number](StreamProgress progress, const absl::Status& status) { OnOver(number, progress, status); }});
    {
      MutexLock lock(&mutex_);
      if (closed_) return EndLocked();
      state_ = State::kConnecting;
      stream_ = stream;
      stream_number_ = number;
      ++live_streams_;
      join_first_.OnNewStream();
    }
    try_began_ = SteadyNow();
    stream->Connect(Timeout());
  }

  absl::Duration Timeout() const {
    if (!lost_at_) return ClientStream::kConnectTimeout;
    const absl::Duration half = (SteadyNow() - *lost_at_) / 2;
    return std::min(std::max(half, patience_), ClientStream::kConnectTimeout);
  }

  // Whether the stream is still that which events are for; those of one that was given up are of no interest.
  bool IsPresent(uint64_t number) {
    MutexLock lock(&mutex_);
    return number == stream_number_;
  }

  void OnOpen(uint64_t number) {
    {
      MutexLock lock(&mutex_);
      if (number != stream_number_) return;
      state_ = State::kOpen;
    }
    Emit(Connected{});
  }

  void OnServerMessage(uint64_t number, ServerMessage message) {
    if (!IsPresent(number)) return;
    backoff_.Reset();
    if (!std::exchange(works_, true)) {
      good_target_ = targets_[next_target_ - 1];
      // The server has taken the Join, so the end of an older stream means nothing to it any more.
      EndSilentStreams();
    }
    Emit(std::move(message));
  }

  void EndSilentStreams() {
    std::vector<std::shared_ptr<ClientStream>> silent;
    {
      MutexLock lock(&mutex_);
      silent.swap(silent_);
    }
    for (const auto& stream : silent) stream->Abandon();
  }

  void OnOver(uint64_t number, StreamProgress progress, const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (--live_streams_ == 0) stream_over_.NotifyAll();
      if (number != stream_number_) return;
      stream_ = nullptr;
      if (closed_) return EndLocked();
      state_ = State::kPausing;
    }
    NoteLoss();
    if (IsNobodyThere(progress, status) && targets_[next_target_ - 1] == good_target_) refused_ = try_began_;
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

  void NoteLoss() {
    if (std::exchange(works_, false)) lost_at_ = SteadyNow();
  }

  void RetryAfter(Disconnected end) {
    const bool permanent = end.permanent;
    end.refused = refused_;
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

  void OnRetry(bool) {
    bool was_reset = false;
    {
      MutexLock lock(&mutex_);
      if (closed_) return EndLocked();
      was_reset = std::exchange(was_reset_, false);
    }
    if (was_reset) {
      NoteLoss();
      return RetryAfter(DescribeEnd(address_, StreamProgress::kAbandoned, absl::OkStatus()));
    }
    if (lost_at_ && !targets_.empty() && SteadyNow() - *lost_at_ < kAddressesStand) {
      return TryAddresses(std::move(targets_));
    }
    Begin();
  }

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
  const absl::Duration patience_;
  grpc::CompletionQueue queue_;

  // Of the completion queue's thread.
  Backoff backoff_;
  std::vector<std::string> targets_;
  size_t next_target_ = 0;
  std::string tried_;                  // each of targets_ that failed since the first, and why
  uint64_t streams_ = 0;               // there have been so many
  bool works_ = false;                 // the server has spoken on the present one
  std::optional<SteadyTime> lost_at_;  // when the last one that worked was
  std::string good_target_;            // where it led to
  SteadyTime try_began_;
  std::optional<SteadyTime> refused_;  // at good_target_, in this round over the addresses

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kResolving;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ClientStream> stream_ ABSL_GUARDED_BY(mutex_);
  uint64_t stream_number_ ABSL_GUARDED_BY(mutex_) = 0;  // of the present one
  int live_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<ClientStream>> silent_ ABSL_GUARDED_BY(mutex_);  // given up, but not ended
  bool was_reset_ ABSL_GUARDED_BY(mutex_) = false;
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

std::unique_ptr<Client> NewGrpcClient(const HostPort& server, Client::Handler handler, absl::Duration patience) {
  QuietGrpc();
  return std::make_unique<GrpcClient>(server, std::move(handler), patience);
}

}  // namespace ddprun::rendezvous
