#ifndef DDPRUN_RENDEZVOUS_SERVER_EVENT_STREAM_H_
#define DDPRUN_RENDEZVOUS_SERVER_EVENT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>

#include "proto/control.grpc.pb.h"
#include "rendezvous/server/control_service.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {

// One WatchEvents call. Owns itself; deleted by the queue's thread when the call is over. All methods except Stop run
// on that thread. Reads the log only as fast as the client takes events, so nothing accumulates.
class EventStream {
 public:
  static void AwaitNext(ControlService* control);

  // Any thread, while the service lists the stream.
  void Stop() { context_.TryCancel(); }

 private:
  explicit EventStream(ControlService* control) : control_(control), token_(control->calls_) {}

  void OnAccepted(bool ok);
  void OnChecked(const absl::Status& status);
  // Called on any thread when there is a new event.
  void OnEvent();
  // Writes the next event, if none is being written.
  void Pump();
  void Finish(const grpc::Status& status);
  void OnWritten(bool ok);
  void OnFinished(bool) { OperationOver(); }
  // The call was cancelled by the client or the server, or was finished.
  void OnDone(bool);
  void OperationOver();

  ControlService* const control_;
  const CallCounter::Token token_;
  grpc::ServerContext context_;
  v1::WatchEventsRequest request_;
  grpc::ServerAsyncWriter<v1::Event> writer_{&context_};
  EventLog::Watch watch_;
  uint64_t after_ = 0;    // number of the last event read
  bool writing_ = false;  // the initial metadata, a Write or the Finish is in flight
  bool over_ = false;     // nothing more will be written
  bool listed_ = false;
  std::atomic<int> pending_ = 0;  // operations in flight, posted calls included
  std::atomic<bool> posted_ = false;
  MemberCompletion<EventStream, &EventStream::OnAccepted> accepted_tag_{this};
  MemberCompletion<EventStream, &EventStream::OnWritten> written_tag_{this};
  MemberCompletion<EventStream, &EventStream::OnFinished> finished_tag_{this};
  MemberCompletion<EventStream, &EventStream::OnDone> done_tag_{this};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EVENT_STREAM_H_
