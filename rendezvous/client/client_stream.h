#ifndef DDPRUN_RENDEZVOUS_CLIENT_CLIENT_STREAM_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CLIENT_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "rendezvous/client/reconnector.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {

// One call of Rendezvous.Session on a connection of its own, from the first packet to the status. Send, Close and
// Abandon may be called by any thread at any time; events come from the completion queue's thread. The object keeps
// itself alive while gRPC operations are in flight.
class ClientStream final : public std::enable_shared_from_this<ClientStream> {
 public:
  struct Events {
    std::function<void(int64_t epoch)> on_open;  // a rendezvous server answers; epoch 0: it is the only server
    std::function<void(ServerMessage)> on_message;
    // The last event; always called. The answer is set if the progress is kFollower.
    std::function<void(StreamProgress, absl::Status, FollowerAnswer)> on_over;
  };

  // `target` is gRPC's name of one address, `host` the name that its certificate must be valid for; for `authorization`
  // see ClientSecurity. The queue must outlive the stream.
  ClientStream(const std::string& target, const std::string& host, ClientSecurity* security,
               const std::string& authorization, grpc::CompletionQueue* queue, Events events);

  static constexpr absl::Duration kConnectTimeout = absl::Seconds(10);

  // Starts to connect, with a timeout of at most kConnectTimeout. Call once.
  void Connect(absl::Duration timeout);

  // Queues a message. Dropped after Close or the end of the stream.
  void Send(const LauncherMessage& message);

  // Sends queued messages, then half-closes; the stream is cut if the server does not end it within 1.5 seconds.
  void Close();

  // Cuts the stream.
  void Abandon();

 private:
  void OnStarted(bool ok);
  void OnMetadata(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnConnectTimer(bool ok);
  void OnCloseTimer(bool ok);

  void ReadNext();
  void WriteNext();
  void Finish();
  FollowerAnswer ReadFollowerAnswer() const;
  void OperationOver();  // the last one ends the stream's life

  const Events events_;
  grpc::CompletionQueue* const queue_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;

  // Used only by the completion queue's thread.
  std::shared_ptr<ClientStream> self_;
  grpc::ByteBuffer inbound_;
  grpc::Status status_;
  absl::Status malformed_;  // set if the server sent a malformed message
  bool unknown_kind_noted_ = false;

  Mutex mutex_;
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;  // operations and timers
  std::deque<grpc::ByteBuffer> outbound_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // a write is in flight or not allowed
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // waiting for the status, or it has arrived
  StreamProgress progress_ ABSL_GUARDED_BY(mutex_) = StreamProgress::kNone;
  grpc::Alarm connect_timer_;
  grpc::Alarm close_timer_;

  MemberCompletion<ClientStream, &ClientStream::OnStarted> started_tag_{this};
  MemberCompletion<ClientStream, &ClientStream::OnMetadata> metadata_tag_{this};
  MemberCompletion<ClientStream, &ClientStream::OnRead> read_tag_{this};
  MemberCompletion<ClientStream, &ClientStream::OnWritten> written_tag_{this};
  MemberCompletion<ClientStream, &ClientStream::OnFinished> finished_tag_{this};
  MemberCompletion<ClientStream, &ClientStream::OnConnectTimer> connect_timer_tag_{this};
  MemberCompletion<ClientStream, &ClientStream::OnCloseTimer> close_timer_tag_{this};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CLIENT_STREAM_H_
