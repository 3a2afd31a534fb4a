#include "rendezvous/server/event_stream.h"

#include "rendezvous/wire/byte_buffer.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kReadAtOnce = 64;

}  // namespace

void EventStream::AwaitNext(ControlService* control) {
  auto* stream = new EventStream(control);
  stream->context_.AsyncNotifyWhenDone(static_cast<Completion*>(&stream->done_tag_));
  control->service_.RequestWatchEvents(&stream->context_, &stream->request_, &stream->writer_, control->queue_,
                                       control->queue_, static_cast<Completion*>(&stream->accepted_tag_));
}

void EventStream::OnAccepted(bool ok) {
  if (!ok) {  // no call, so OnDone never comes
    delete this;
    return;
  }
  AwaitNext(control_);
  pending_ = 2;  // OnDone, and the check
  control_->guard_->Check(context_, Role::kRead,
                          [this](const absl::StatusOr<Caller>& caller) { OnChecked(caller.status()); });
}

void EventStream::OnChecked(const absl::Status& status) {
  EventLog* const log = control_->driver_->events();
  if (!status.ok()) {
    Finish(ToGrpcStatus(status));
  } else if (log == nullptr) {
    Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this server keeps no events"));
  } else if (!over_) {
    const absl::Status added = control_->Add(this, context_.peer());
    listed_ = added.ok();
    if (listed_) {
      after_ = request_.after() > log->newest() ? 0 : request_.after();
      if (request_.follow()) watch_ = log->AddWatch([this] { OnEvent(); });
      writing_ = true;
      ++pending_;
      context_.AddInitialMetadata(kServerMarker, "1");
      writer_.SendInitialMetadata(static_cast<Completion*>(&written_tag_));  // do not wait for an event
    } else {
      Finish(ToGrpcStatus(added));
    }
  }
  OperationOver();
}

void EventStream::OnEvent() {
  if (posted_.exchange(true)) return;
  ++pending_;
  PostTo(control_->queue_, [this] {
    posted_ = false;
    Pump();
    OperationOver();
  });
}

void EventStream::Pump() {
  while (!writing_ && !over_) {
    const EventLog::Events events = control_->driver_->events()->Read(after_, kReadAtOnce);
    for (const auto& event : events) {
      after_ = event->number();
      if (!request_.job_id().empty() && event->job_id() != request_.job_id()) continue;
      writing_ = true;
      ++pending_;
      writer_.Write(*event, static_cast<Completion*>(&written_tag_));
      return;
    }
    if (!events.empty()) continue;
    if (!request_.follow()) Finish(grpc::Status::OK);
    return;
  }
}

void EventStream::Finish(const grpc::Status& status) {
  if (over_) return;
  over_ = true;
  writing_ = true;
  ++pending_;
  writer_.Finish(status, static_cast<Completion*>(&finished_tag_));
}

void EventStream::OnWritten(bool ok) {
  writing_ = false;
  if (ok) {
    Pump();
  } else {
    over_ = true;
  }
  OperationOver();
}

void EventStream::OnDone(bool) {
  over_ = true;
  watch_.Reset();
  OperationOver();
}

void EventStream::OperationOver() {
  if (--pending_ > 0) return;
  if (listed_) control_->Remove(this);
  delete this;
}

}  // namespace ddprun::rendezvous
