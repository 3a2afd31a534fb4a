#include "rendezvous/server/launcher_stream.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/envelope.h"
#include "rendezvous/wire/leader_hint.h"

namespace ddprun::rendezvous {
namespace {

absl::Status ShuttingDown() {
  return absl::UnavailableError("the rendezvous server is shutting down; reconnect later");
}

}  // namespace

void LauncherStreams::Shutdown() {
  std::unordered_map<const LauncherStream*, std::shared_ptr<LauncherStream>> open;
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
    open = open_;
    timer_.Cancel();
  }
  for (const auto& [key, stream] : open) stream->End(ShuttingDown());
}

absl::Status LauncherStreams::Add(const std::shared_ptr<LauncherStream>& stream, const std::string& peer) {
  std::shared_ptr<LauncherStream> surplus;
  {
    MutexLock lock(&mutex_);
    if (shut_down_) return ShuttingDown();
    DDPRUN_RETURN_IF_ERROR(limits_.Open(stream.get(), peer, SteadyNow()));
    open_[stream.get()] = stream;
    if (const void* key = limits_.TakeSurplus()) surplus = open_[static_cast<const LauncherStream*>(key)];
    SetTimerLocked();
  }
  if (surplus != nullptr) surplus->End(absl::ResourceExhaustedError("too many streams without a Join"));
  return absl::OkStatus();
}

void LauncherStreams::Joined(const LauncherStream* stream) {
  MutexLock lock(&mutex_);
  limits_.Joined(stream);
}

void LauncherStreams::SetTimerLocked() {
  const SteadyTime next = limits_.NextDeadline();
  if (timer_token_.has_value() || shut_down_ || next == SteadyTime::InfiniteFuture()) return;
  timer_token_.emplace(server->calls());
  timer_.Set(server->queue(), AfterNow(std::max(next - SteadyNow(), absl::ZeroDuration())),
             static_cast<Completion*>(&timer_tag_));
}

void LauncherStreams::OnDeadline(bool) {
  const CallCounter::Token until_return(server->calls());
  std::vector<std::shared_ptr<LauncherStream>> overdue;
  {
    MutexLock lock(&mutex_);
    timer_token_.reset();
    for (const void* key : limits_.TakeOverdue(SteadyNow())) {
      overdue.push_back(open_[static_cast<const LauncherStream*>(key)]);
    }
    SetTimerLocked();
  }
  for (const auto& stream : overdue) stream->End(absl::DeadlineExceededError("timed out waiting for a Join"));
}

void LauncherStreams::NoteUnknownKind(const absl::Status& what) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(unknown_kind_noted_, true)) return;
  }
  Log(LogLevel::kWarning, absl::StrCat("ignoring messages from a newer ddprun (", what.message(),
                                       "); upgrade this server to support them"));
}

void LauncherStreams::Remove(const LauncherStream* stream) {
  MutexLock lock(&mutex_);
  limits_.Closed(stream);
  open_.erase(stream);
}

void LauncherStream::AwaitNext(LauncherStreams* streams) {
  auto stream = std::make_shared<LauncherStream>(streams);
  stream->self_ = stream;
  streams->service->RequestSession(&stream->call_->context, &stream->call_->stream, streams->server->queue(),
                                   streams->server->queue(), static_cast<Completion*>(&stream->accepted_tag_));
}

void LauncherStream::OnAccepted(bool ok) {
  if (!ok) {  // the server is shutting down: there is no call
    const std::shared_ptr<LauncherStream> keep_until_return = std::move(self_);
    return;
  }
  AwaitNext(streams_);
  // Sent at once, so that the launcher knows that it reached a rendezvous server.
  call_->context.AddInitialMetadata(kServerMarker, "1");
  if (streams_->epoch != 0) call_->context.AddInitialMetadata(kEpochKey, absl::StrCat(streams_->epoch));
  call_->stream.SendInitialMetadata(static_cast<Completion*>(&metadata_tag_));
  peer_ = PeerOfCall(call_->context.peer());
  if (!streams_->server->acceptor()->OnStreamStarted(peer_)) {
    return End(absl::ResourceExhaustedError("too many streams without a Join on one connection"));
  }
  streams_->server->guard()->Check(call_->context, Role::kLauncher,
                                   [self = self_](const absl::StatusOr<Caller>& caller) { self->OnChecked(caller); });
}

void LauncherStream::OnChecked(const absl::StatusOr<Caller>& caller) {
  const absl::Status status = caller.ok() ? streams_->Add(self_, peer_.host) : caller.status();
  if (status.ok()) {
    user_ = caller->name;
    ReadNext();
  } else {
    End(status);
  }
}

void LauncherStream::OnMetadataSent(bool) { OnWritten(true); }

void LauncherStream::ReadNext() {
  {
    MutexLock lock(&mutex_);
    if (end_.has_value()) return;
  }
  reading_ = true;
  call_->stream.Read(&inbound_, static_cast<Completion*>(&read_tag_));
}

void LauncherStream::OnRead(bool ok) {
  reading_ = false;
  if (ok) {
    HandleMessageBytes(inbound_);
    inbound_.Clear();
    ReadNext();
  } else {
    NotifyDriverClosed();
    End(absl::InvalidArgumentError("the stream ended before its first message"));
  }
  ReleaseIfOver();
}

void LauncherStream::HandleMessageBytes(const grpc::ByteBuffer& buffer) {
  {
    MutexLock lock(&mutex_);
    if (end_.has_value()) return;
  }
  v1::LauncherMessage proto;
  absl::Status status = ParseByteBuffer(buffer, &proto);
  if (status.ok()) {
    absl::StatusOr<LauncherMessage> message = FromProto(proto);
    if (message.ok()) {
      if (!std::exchange(driver_knows_, true)) {
        streams_->Joined(this);
        streams_->server->acceptor()->OnSessionStarted(peer_);
      }
      if (Join* join = std::get_if<Join>(&*message)) {
        join->mutable_origin()->set_peer(peer_.host);
        join->mutable_origin()->set_user(user_);
      }
      streams_->driver->OnMessage(shared_from_this(), *message);
      return;
    }
    status = message.status();
  }
  if (absl::IsUnimplemented(status)) return streams_->NoteUnknownKind(status);
  End(status);
  NotifyDriverClosed();
}

void LauncherStream::NotifyDriverClosed() {
  if (driver_knows_ && !std::exchange(driver_notified_closed_, true)) streams_->driver->OnClosed(shared_from_this());
}

void LauncherStream::Send(const ServerMessage& message) {
  grpc::ByteBuffer bytes = ToByteBuffer(ToProto(message));
  {
    MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    outbound_bytes_ += bytes.Length();
    outbound_.push_back(std::move(bytes));
    if (outbound_.size() > kMaxQueuedMessages || outbound_bytes_ > kMaxQueuedBytes) {
      end_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          "send queue full: the launcher does not read its messages");
      outbound_.clear();
      // The write in flight would never end: the launcher does not read.
      if (call_ != nullptr) call_->context.TryCancel();
    }
  }
  WriteNext();
}

void LauncherStream::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    end_ = ToGrpcStatus(status);
  }
  WriteNext();
}

void LauncherStream::WriteNext() {
  Call* call = nullptr;
  grpc::ByteBuffer next;
  std::optional<grpc::Status> end;
  {
    MutexLock lock(&mutex_);
    if (writing_) return;
    if (!outbound_.empty()) {
      next = std::move(outbound_.front());
      outbound_.pop_front();
      outbound_bytes_ -= next.Length();
    } else if (end_.has_value()) {
      end = end_;
    } else {
      return;
    }
    writing_ = true;  // claims the stream until the operation is over
    call = call_.get();
  }
  if (end.has_value()) {
    call->stream.Finish(*end, static_cast<Completion*>(&finished_tag_));
  } else {
    call->stream.Write(next, static_cast<Completion*>(&written_tag_));
  }
}

void LauncherStream::OnWritten(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) outbound_.clear();  // the stream broke; the read fails as well
  }
  WriteNext();
}

void LauncherStream::OnFinished(bool) {
  finished_ = true;
  ReleaseIfOver();
}

void LauncherStream::ReleaseIfOver() {
  if (!finished_ || reading_) return;
  NotifyDriverClosed();
  if (driver_knows_) streams_->server->acceptor()->OnSessionClosed(peer_);
  streams_->Remove(this);
  const std::shared_ptr<LauncherStream> keep_until_return = std::move(self_);
  MutexLock lock(&mutex_);
  call_ = nullptr;
}

}  // namespace ddprun::rendezvous
