#ifndef DDPRUN_RENDEZVOUS_SERVER_LAUNCHER_STREAM_H_
#define DDPRUN_RENDEZVOUS_SERVER_LAUNCHER_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/server/client_limits.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/grpc_server.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {

using AsyncRendezvous = v1::Rendezvous::WithRawMethod_Session<
    v1::Rendezvous::WithAsyncMethod_ListJobs<v1::Rendezvous::WithAsyncMethod_GetJob<v1::Rendezvous::Service>>>;

class LauncherStream;

// All launcher streams of one server. Thread-safe. Must outlive the server's calls.
class LauncherStreams {
 public:
  LauncherStreams(Driver* driver, AsyncRendezvous* service, GrpcServer* server, const StreamLimits::Limits& limits,
                  int64_t epoch)
      : driver(driver), service(service), server(server), epoch(epoch), limits_(limits) {}

  // Ends all streams, current and later ones, with UNAVAILABLE.
  void Shutdown();

  Driver* const driver;
  AsyncRendezvous* const service;
  GrpcServer* const server;
  const int64_t epoch;  // see ServerOptions

 private:
  friend class LauncherStream;
  // Registers a new stream. Returns why it is refused, else OK. May end an older stream to make room.
  absl::Status Add(const std::shared_ptr<LauncherStream>& stream, const std::string& peer);
  // The stream's first message has reached the driver.
  void Joined(const LauncherStream* stream);
  // Logs the first message of a kind that is unknown to this version.
  void NoteUnknownKind(const absl::Status& what);
  void Remove(const LauncherStream* stream);
  void OnDeadline(bool ok);
  void SetTimerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  bool unknown_kind_noted_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_map<const LauncherStream*, std::shared_ptr<LauncherStream>> open_ ABSL_GUARDED_BY(mutex_);
  StreamLimits limits_ ABSL_GUARDED_BY(mutex_);
  std::optional<CallCounter::Token> timer_token_ ABSL_GUARDED_BY(mutex_);  // set: the timer runs
  grpc::Alarm timer_;
  MemberCompletion<LauncherStreams, &LauncherStreams::OnDeadline> timer_tag_{this};
};

// One Rendezvous.Session call: decodes messages for the driver and encodes the driver's messages. Send and End may be
// called by any thread; everything else runs on the completion queue's thread. Owns itself while gRPC operations are in
// flight.
class LauncherStream final : public Session, public std::enable_shared_from_this<LauncherStream> {
 public:
  // Waits for the next launcher; each accepted call starts the wait for another one.
  static void AwaitNext(LauncherStreams* streams);

  explicit LauncherStream(LauncherStreams* streams)
      : streams_(streams), call_(std::make_unique<Call>(streams->server->calls())) {}

  void Send(const ServerMessage& message) override;
  void End(const absl::Status& status) override;

 private:
  // A launcher that leaves more than this unread is disconnected.
  static constexpr size_t kMaxQueuedMessages = 4096;
  static constexpr size_t kMaxQueuedBytes = 4 << 20;

  void OnAccepted(bool ok);
  void OnChecked(const absl::StatusOr<Caller>& caller);
  void OnMetadataSent(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  void HandleMessageBytes(const grpc::ByteBuffer& buffer);
  void ReadNext();
  void NotifyDriverClosed();
  // Starts the next write, or the Finish, if none is in flight.
  void WriteNext();
  void ReleaseIfOver();

  // The objects that gRPC uses.
  struct Call {
    explicit Call(CallCounter* calls) : token(calls) {}
    const CallCounter::Token token;
    grpc::ServerContext context;
    grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream{&context};
  };

  LauncherStreams* const streams_;
  std::shared_ptr<LauncherStream> self_;

  // Reset when the call is over, because the driver may keep the session a little longer, even longer than the server.
  // Protected by an operation in flight (and `writing_`), else by the mutex.
  std::unique_ptr<Call> call_;

  // Completion queue's thread only.
  grpc::ByteBuffer inbound_;
  bool reading_ = false;
  bool finished_ = false;
  PeerAddress peer_;
  std::string user_;                     // see Join
  bool driver_knows_ = false;            // OnMessage was called
  bool driver_notified_closed_ = false;  // OnClosed was called

  Mutex mutex_;
  std::deque<grpc::ByteBuffer> outbound_ ABSL_GUARDED_BY(mutex_);
  size_t outbound_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // a write is in flight, or Finish was called; at first the metadata
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);

  MemberCompletion<LauncherStream, &LauncherStream::OnAccepted> accepted_tag_{this};
  MemberCompletion<LauncherStream, &LauncherStream::OnMetadataSent> metadata_tag_{this};
  MemberCompletion<LauncherStream, &LauncherStream::OnRead> read_tag_{this};
  MemberCompletion<LauncherStream, &LauncherStream::OnWritten> written_tag_{this};
  MemberCompletion<LauncherStream, &LauncherStream::OnFinished> finished_tag_{this};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_LAUNCHER_STREAM_H_
