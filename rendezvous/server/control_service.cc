#include "rendezvous/server/control_service.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/socket_address.h"
#include "rendezvous/core/job_state.h"
#include "rendezvous/server/client_limits.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kJobsAtOnce = 1000;
constexpr size_t kReadAtOnce = 64;  // events

v1::ListHostsResponse HostsOf(const Driver& driver) {
  std::map<std::string, v1::Host> hosts;
  for (const std::string& name : driver.DrainedHosts()) hosts[name].set_drained(true);
  std::string after;
  while (true) {
    const std::vector<v1::Job> jobs = driver.ListJobs(after, kJobsAtOnce);
    for (const v1::Job& listed : jobs) {
      after = listed.job_id();
      if (IsEnd(StateOf(listed))) continue;
      const std::optional<v1::Job> job = driver.GetJob(listed.job_id());
      if (!job.has_value()) continue;
      for (const v1::Node& node : job->nodes()) {
        v1::Host& host = hosts[node.host()];
        host.set_nodes(host.nodes() + 1);
        if (node.group_rank() >= 0) host.set_ranked_nodes(host.ranked_nodes() + 1);
      }
    }
    if (jobs.size() < kJobsAtOnce) break;
  }
  v1::ListHostsResponse response;
  for (auto& [name, host] : hosts) {
    host.set_name(name);
    *response.add_hosts() = std::move(host);
  }
  return response;
}

}  // namespace

// One WatchEvents call. Reads the log only as fast as the client takes events, so nothing accumulates.
class EventStream final : public AsyncCall<> {
 public:
  explicit EventStream(ControlService* control)
      : AsyncCall(control->server_, Role::kRead), control_(control), log_(control->driver_->events()) {
    NotifyWhenDone();
    control->service_.RequestWatchEvents(&context_, &request_, &writer_, server()->queue(), server()->queue(),
                                         accepted_tag());
  }

 private:
  ~EventStream() override {
    if (listed_) control_->Remove(this);
  }

  void AwaitNext() override { new EventStream(control_); }

  void OnChecked(const absl::StatusOr<Caller>& caller) override {
    if (!caller.ok()) return Finish(ToGrpcStatus(caller.status()));
    if (log_ == nullptr) return Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this server keeps no events"));
    if (over_) return;
    if (absl::Status added = control_->Add(this, context_.peer()); !added.ok()) return Finish(ToGrpcStatus(added));
    listed_ = true;
    after_ = request_.after() > log_->newest() ? 0 : request_.after();
    if (request_.follow()) watch_ = log_->AddWatch([this] { OnEvent(); });
    writing_ = true;
    Begin();
    context_.AddInitialMetadata(kServerMarker, "1");
    writer_.SendInitialMetadata(static_cast<Completion*>(&written_tag_));  // do not wait for an event
  }

  // Called on any thread when there is a new event.
  void OnEvent() {
    if (posted_.exchange(true)) return;
    Begin();
    PostTo(server()->queue(), [this] {
      posted_ = false;
      WriteNext();
      OperationOver();
    });
  }

  // Writes the next event, if none is being written.
  void WriteNext() {
    while (!writing_ && !over_) {
      const EventLog::Events events = log_->Read(after_, kReadAtOnce);
      for (const auto& event : events) {
        after_ = event->number();
        if (!request_.job_id().empty() && event->job_id() != request_.job_id()) continue;
        writing_ = true;
        Begin();
        writer_.Write(*event, static_cast<Completion*>(&written_tag_));
        return;
      }
      if (!events.empty()) continue;
      if (!request_.follow()) Finish(grpc::Status::OK);
      return;
    }
  }

  void Finish(const grpc::Status& status) {
    if (over_) return;
    over_ = true;
    writing_ = true;
    Begin();
    writer_.Finish(status, static_cast<Completion*>(&finished_tag_));
  }

  void OnWritten(bool ok) {
    writing_ = false;
    if (ok) {
      WriteNext();
    } else {
      over_ = true;
    }
    OperationOver();
  }

  void OnFinished(bool) { OperationOver(); }

  void OnDone() override {
    over_ = true;
    watch_.Reset();
  }

  ControlService* const control_;
  EventLog* const log_;
  v1::WatchEventsRequest request_;
  grpc::ServerAsyncWriter<v1::Event> writer_{&context_};
  EventLog::Watch watch_;
  uint64_t after_ = 0;    // number of the last event read
  bool writing_ = false;  // the initial metadata, a Write or the Finish is in flight
  bool over_ = false;     // nothing more will be written
  bool listed_ = false;   // registered with the service
  std::atomic<bool> posted_ = false;
  MemberCompletion<EventStream, &EventStream::OnWritten> written_tag_{this};
  MemberCompletion<EventStream, &EventStream::OnFinished> finished_tag_{this};
};

absl::Status ControlService::CheckUser(const std::string& peer) {
  const PeerAddress from = PeerOfCall(peer);
  const absl::Status refused = absl::PermissionDeniedError(absl::StrCat(
      "this server does not check who calls it, so it takes commands only from root and its own user (uid ", geteuid(),
      ") over its own host's loopback: run the command there as that user with --server=127.0.0.1:PORT, or give the "
      "server a token (--token-file) or client certificates (--tls-ca)"));
  const absl::StatusOr<SocketAddress> far = NumericAddress(from.host, from.port);
  if (!far.ok()) return refused;
  const std::vector<PeerAddress> ends = server_->acceptor()->LocalEndsOf(from);
  // Any of them may be the caller's, including one that it has already closed.
  for (const PeerAddress& end : ends) {
    const absl::StatusOr<SocketAddress> own = NumericAddress(end.host, end.port);
    if (!own.ok()) return refused;
    const absl::StatusOr<uid_t> user = socket_owner_.UserOf(*far, *own);
    if (!user.ok() || !IsRootOrOwnUser(*user)) return refused;
  }
  return ends.empty() ? refused : absl::OkStatus();
}

absl::Status ControlService::CheckCommander(const std::string& peer) {
  return server_->guard()->AuthenticatesCallers() ? absl::OkStatus() : CheckUser(peer);
}

template <typename Request>
void ControlService::Serve(RequestMethod<Request> method, Role needed,
                           std::function<Command(const Request&)> command_of) {
  UnaryCall<Request, v1::CommandResponse>::ServeLater(
      server_, needed,
      [this, method](grpc::ServerContext* context, Request* request,
                     grpc::ServerAsyncResponseWriter<v1::CommandResponse>* responder, void* tag) {
        (service_.*method)(context, request, responder, server_->queue(), server_->queue(), tag);
      },
      [this, command_of = std::move(command_of)](const grpc::ServerContextBase& context, const Caller& caller,
                                                 const Request& request, v1::CommandResponse*,
                                                 std::function<void(const grpc::Status&)> answer) {
        if (absl::Status status = CheckCommander(context.peer()); !status.ok()) return answer(ToGrpcStatus(status));
        driver_->OnCommand(command_of(request), caller,
                           [answer = std::move(answer)](const absl::Status& status) { answer(ToGrpcStatus(status)); });
      });
}

void ControlService::ServeInspect() {
  UnaryCall<v1::InspectRequest, v1::InspectResponse>::ServeLater(
      server_, Role::kLauncher,
      [this](grpc::ServerContext* context, v1::InspectRequest* request,
             grpc::ServerAsyncResponseWriter<v1::InspectResponse>* responder, void* tag) {
        service_.RequestInspect(context, request, responder, server_->queue(), server_->queue(), tag);
      },
      [this](const grpc::ServerContextBase& context, const Caller& caller, const v1::InspectRequest& request,
             v1::InspectResponse* response, std::function<void(const grpc::Status&)> answer) {
        if (absl::Status status = CheckCommander(context.peer()); !status.ok()) return answer(ToGrpcStatus(status));
        driver_->Inspect(request, caller, response,
                         [answer = std::move(answer)](const absl::Status& status) { answer(ToGrpcStatus(status)); });
      });
}

void ControlService::Start(GrpcServer* server) {
  server_ = server;
  using Service = v1::Control::AsyncService;
  // For launchers the registry checks that they own the job.
  Serve<v1::StopJobRequest>(&Service::RequestStopJob, Role::kLauncher,
                            [](const v1::StopJobRequest& request) { return StopJob{request.job_id()}; });
  Serve<v1::ResizeJobRequest>(&Service::RequestResizeJob, Role::kLauncher, [](const v1::ResizeJobRequest& request) {
    return ResizeJob{request.job_id(), request.min_nodes(), request.max_nodes()};
  });
  Serve<v1::KickNodeRequest>(&Service::RequestKickNode, Role::kLauncher, [](const v1::KickNodeRequest& request) {
    return KickNode{request.job_id(), request.node()};
  });
  Serve<v1::DrainHostRequest>(&Service::RequestDrainHost, Role::kAdmin,
                              [](const v1::DrainHostRequest& request) { return DrainHost{request.host()}; });
  Serve<v1::UndrainHostRequest>(&Service::RequestUndrainHost, Role::kAdmin,
                                [](const v1::UndrainHostRequest& request) { return UndrainHost{request.host()}; });
  UnaryCall<v1::ListHostsRequest, v1::ListHostsResponse>::Serve(
      server,
      [this](grpc::ServerContext* context, v1::ListHostsRequest* request,
             grpc::ServerAsyncResponseWriter<v1::ListHostsResponse>* responder, void* tag) {
        service_.RequestListHosts(context, request, responder, server_->queue(), server_->queue(), tag);
      },
      [this](const v1::ListHostsRequest&, v1::ListHostsResponse* response) {
        *response = HostsOf(*driver_);
        return grpc::Status::OK;
      });
  ServeInspect();
  new EventStream(this);
}

void ControlService::Shutdown() {
  driver_->StopCommands();
  MutexLock lock(&mutex_);
  shut_down_ = true;
  for (const auto& [stream, address] : streams_) stream->Cancel();
}

absl::Status ControlService::Add(EventStream* stream, const std::string& peer) {
  const bool known = server_->guard()->AuthenticatesCallers() || CheckUser(peer).ok();
  const std::string stranger = known ? "" : AddressOfPeer(peer);
  MutexLock lock(&mutex_);
  if (shut_down_) return absl::UnavailableError("the server is shutting down");
  if (streams_.size() >= kMaxWatchers) return absl::ResourceExhaustedError("too many watchers");
  if (!known) {
    size_t strangers = 0, of_address = 0;
    for (const auto& [other, address] : streams_) {
      if (!address.empty()) ++strangers;
      if (address == stranger) ++of_address;
    }
    if (strangers >= kMaxUnauthenticated || of_address >= kMaxPerAddress) {
      return absl::ResourceExhaustedError("too many watchers without credentials");
    }
  }
  streams_.emplace(stream, stranger);
  return absl::OkStatus();
}

void ControlService::Remove(EventStream* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
}

}  // namespace ddprun::rendezvous
