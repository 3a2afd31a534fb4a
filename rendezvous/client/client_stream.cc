#include "rendezvous/client/client_stream.h"

#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/envelope.h"
#include "rendezvous/wire/leader_hint.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kCloseTimeout = absl::Milliseconds(1500);
constexpr char kMethod[] = "/ddprun.v1.Rendezvous/Session";

// A channel with a single connection, made at once and never remade by gRPC itself.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& target, const std::string& host,
                                          ClientSecurity* security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // launchers and server are on one network
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(2 * ClientStream::kConnectTimeout)));
  arguments.SetMaxReceiveMessageSize(kMaxReceivedBytes);
  const std::shared_ptr<grpc::ChannelCredentials> credentials = security->ForChannel(&arguments, host);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

template <typename Tag>
void* AsTag(Tag* tag) {
  return static_cast<Completion*>(tag);
}

// The epoch in the metadata, or 0.
int64_t EpochIn(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  int64_t epoch = 0;
  const auto found = metadata.find(kEpochKey);
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &epoch)) {
    return 0;
  }
  return epoch;
}

}  // namespace

ClientStream::ClientStream(const std::string& target, const std::string& host, ClientSecurity* security,
                           const std::string& authorization, grpc::CompletionQueue* queue, Events events)
    : events_(std::move(events)), queue_(queue), channel_(NewChannel(target, host, security)), stub_(channel_) {
  // Added by hand because gRPC's own call credentials refuse connections without TLS.
  if (!authorization.empty()) context_.AddMetadata(kAuthorization, authorization);
}

void ClientStream::Connect(absl::Duration timeout) {
  self_ = shared_from_this();
  call_ = stub_.PrepareCall(&context_, kMethod, queue_);
  {
    MutexLock lock(&mutex_);
    in_flight_ = 2;
    connect_timer_.Set(queue_, AfterNow(timeout), AsTag(&connect_timer_tag_));
  }
  call_->StartCall(AsTag(&started_tag_));
}

void ClientStream::OnStarted(bool ok) {
  if (ok) {
    {
      MutexLock lock(&mutex_);
      ++in_flight_;
    }
    call_->ReadInitialMetadata(AsTag(&metadata_tag_));
  } else {
    Finish();
  }
  OperationOver();
}

void ClientStream::OnMetadata(bool ok) {
  const bool is_server = ok && context_.GetServerInitialMetadata().count(kServerMarker) > 0;
  bool open = false;
  if (is_server) {
    MutexLock lock(&mutex_);
    connect_timer_.Cancel();
    open = progress_ == StreamProgress::kNone;
    if (open) {
      progress_ = StreamProgress::kOpen;
      writing_ = false;
    }
  }
  if (open) {
    events_.on_open(EpochIn(context_.GetServerInitialMetadata()));
    WriteNext();
    ReadNext();
  } else {
    Finish();
  }
  OperationOver();
}

void ClientStream::ReadNext() {
  {
    MutexLock lock(&mutex_);
    ++in_flight_;
  }
  call_->Read(&inbound_, AsTag(&read_tag_));
}

void ClientStream::OnRead(bool ok) {
  if (!ok) {
    Finish();
    OperationOver();
    return;
  }
  v1::ServerMessage proto;
  absl::Status status = ParseByteBuffer(inbound_, &proto);
  inbound_.Clear();
  absl::StatusOr<ServerMessage> message = status.ok() ? FromProto(proto) : status;
  if (message.ok()) {
    events_.on_message(*std::move(message));
    ReadNext();
  } else if (absl::IsUnimplemented(message.status())) {
    if (!std::exchange(unknown_kind_noted_, true)) {
      Log(LogLevel::kWarning,
          absl::StrCat("ignoring messages from a newer rendezvous server (", message.status().message(),
                       "); upgrade ddprun on this node to support them"));
    }
    ReadNext();
  } else {
    malformed_ = message.status();
    context_.TryCancel();
    Finish();
  }
  OperationOver();
}

void ClientStream::Finish() {
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    ++in_flight_;
  }
  call_->Finish(&status_, AsTag(&finished_tag_));
}

void ClientStream::OnFinished(bool) {
  {
    MutexLock lock(&mutex_);
    connect_timer_.Cancel();
    close_timer_.Cancel();
  }
  OperationOver();
}

void ClientStream::OnConnectTimer(bool expired) {
  bool give_up = false;
  if (expired) {
    MutexLock lock(&mutex_);
    give_up = progress_ == StreamProgress::kNone;
    if (give_up) progress_ = StreamProgress::kTimedOut;
  }
  if (give_up) context_.TryCancel();
  OperationOver();
}

void ClientStream::OnCloseTimer(bool expired) {
  if (expired) context_.TryCancel();
  OperationOver();
}

void ClientStream::OperationOver() {
  StreamProgress progress;
  {
    MutexLock lock(&mutex_);
    if (--in_flight_ > 0) return;
    progress = progress_;
  }
  const std::shared_ptr<ClientStream> keep_until_return = std::move(self_);
  const auto& trailing = context_.GetServerTrailingMetadata();
  const bool is_follower = trailing.count(kFollowerKey) > 0 || trailing.count(kServerMarker) > 0;
  if (progress == StreamProgress::kNone && is_follower) {
    return events_.on_over(StreamProgress::kFollower, FromGrpcStatus(status_), ReadFollowerAnswer());
  }
  // A malformed message is not a refusal: another stream may work.
  events_.on_over(progress, malformed_.ok() ? FromGrpcStatus(status_) : absl::InternalError(malformed_.message()),
                  FollowerAnswer());
}

FollowerAnswer ClientStream::ReadFollowerAnswer() const {
  const auto& metadata = context_.GetServerTrailingMetadata();
  FollowerAnswer answer{.epoch = EpochIn(metadata)};
  if (const auto leader = metadata.find(kLeaderKey); leader != metadata.end()) {
    answer.leader = std::string(leader->second.data(), leader->second.size());
  }
  return answer;
}

void ClientStream::Send(const LauncherMessage& message) {
  grpc::ByteBuffer bytes = ToByteBuffer(ToProto(message));
  {
    MutexLock lock(&mutex_);
    if (closing_ || over_) return;
    outbound_.push_back(std::move(bytes));
  }
  WriteNext();
}

void ClientStream::Close() {
  bool open = false;
  {
    MutexLock lock(&mutex_);
    if (closing_ || over_) return;
    closing_ = true;
    open = progress_ == StreamProgress::kOpen;
    if (open) {
      ++in_flight_;
      close_timer_.Set(queue_, AfterNow(kCloseTimeout), AsTag(&close_timer_tag_));
    }
  }
  if (!open) context_.TryCancel();
  WriteNext();
}

void ClientStream::Abandon() {
  {
    MutexLock lock(&mutex_);
    if (progress_ == StreamProgress::kOpen) progress_ = StreamProgress::kAbandoned;
  }
  context_.TryCancel();
}

void ClientStream::WriteNext() {
  grpc::ByteBuffer next;
  bool half_close = false;
  {
    MutexLock lock(&mutex_);
    if (writing_ || over_) return;
    if (!outbound_.empty()) {
      next = std::move(outbound_.front());
      outbound_.pop_front();
    } else if (closing_ && !half_closed_) {
      half_close = half_closed_ = true;
    } else {
      return;
    }
    writing_ = true;  // allows only one write at a time
    ++in_flight_;
  }
  if (half_close) {
    call_->WritesDone(AsTag(&written_tag_));
  } else {
    call_->Write(next, AsTag(&written_tag_));
  }
}

void ClientStream::OnWritten(bool ok) {
  if (ok) {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
    }
    WriteNext();
  }
  OperationOver();
}

}  // namespace ddprun::rendezvous
