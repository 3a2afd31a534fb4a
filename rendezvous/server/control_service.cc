#include "rendezvous/server/control_service.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/loopback.h"
#include "rendezvous/core/job_view.h"
#include "rendezvous/server/event_stream.h"
#include "rendezvous/server/unary_call.h"
#include "rendezvous/wire/byte_buffer.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kJobsAtOnce = 1000;

v1::ListHostsResponse HostsOf(const Driver& driver) {
  std::map<std::string, v1::Host> hosts;
  for (const std::string& name : driver.DrainedHosts()) hosts[name].set_drained(true);
  std::string after;
  while (true) {
    const std::vector<JobView> jobs = driver.ListJobs(after, kJobsAtOnce);
    for (const JobView& listed : jobs) {
      after = listed.job_id;
      if (IsEnd(listed.state)) continue;
      const std::optional<JobView> job = driver.GetJob(listed.job_id);
      if (!job.has_value()) continue;
      for (const NodeView& node : job->nodes) {
        v1::Host& host = hosts[node.host];
        host.set_nodes(host.nodes() + 1);
        if (node.group_rank >= 0) host.set_ranked_nodes(host.ranked_nodes() + 1);
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

absl::Status ControlService::Do(const grpc::ServerContextBase& context, const Command& command) {
  if (!guard_->checks_callers() && !IsLoopbackAddress(AddressOfPeer(context.peer()))) {
    return absl::PermissionDeniedError(
        "this server does not check who calls it, so it takes commands only over its own host's loopback: run the "
        "command there with --server=127.0.0.1:PORT, or give the server a token (--token-file) or client certificates "
        "(--tls-ca)");
  }
  return driver_->OnCommand(command, guard_->ActorOf(context));
}

template <typename Request>
void ControlService::Serve(RequestMethod<Request> method, std::function<Command(const Request&)> command_of) {
  UnaryCall<Request, v1::CommandResponse>::ServeWithContext(
      calls_, guard_,
      [this, method](grpc::ServerContext* context, Request* request,
                     grpc::ServerAsyncResponseWriter<v1::CommandResponse>* responder,
                     void* tag) { (service_.*method)(context, request, responder, queue_, queue_, tag); },
      [this, command_of = std::move(command_of)](const grpc::ServerContextBase& context, const Request& request,
                                                 v1::CommandResponse*) {
        return ToGrpcStatus(Do(context, command_of(request)));
      });
}

void ControlService::Start(grpc::ServerCompletionQueue* queue, CallCounter* calls, CallGuard* guard) {
  queue_ = queue;
  calls_ = calls;
  guard_ = guard;
  using Service = v1::Control::AsyncService;
  Serve<v1::StopJobRequest>(&Service::RequestStopJob,
                            [](const v1::StopJobRequest& request) { return StopJob{request.job_id()}; });
  Serve<v1::ResizeJobRequest>(&Service::RequestResizeJob, [](const v1::ResizeJobRequest& request) {
    return ResizeJob{request.job_id(), request.min_nodes(), request.max_nodes()};
  });
  Serve<v1::KickNodeRequest>(&Service::RequestKickNode, [](const v1::KickNodeRequest& request) {
    return KickNode{request.job_id(), request.node()};
  });
  Serve<v1::DrainHostRequest>(&Service::RequestDrainHost,
                              [](const v1::DrainHostRequest& request) { return DrainHost{request.host()}; });
  Serve<v1::UndrainHostRequest>(&Service::RequestUndrainHost,
                                [](const v1::UndrainHostRequest& request) { return UndrainHost{request.host()}; });
  UnaryCall<v1::ListHostsRequest, v1::ListHostsResponse>::Serve(
      calls, guard,
      [this](grpc::ServerContext* context, v1::ListHostsRequest* request,
             grpc::ServerAsyncResponseWriter<v1::ListHostsResponse>* responder,
             void* tag) { service_.RequestListHosts(context, request, responder, queue_, queue_, tag); },
      [this](const v1::ListHostsRequest&, v1::ListHostsResponse* response) {
        *response = HostsOf(*driver_);
        return grpc::Status::OK;
      });
  EventStream::AwaitNext(this);
}

void ControlService::Shutdown() {
  MutexLock lock(&mutex_);
  shut_down_ = true;
  for (EventStream* stream : streams_) stream->Stop();
}

bool ControlService::Add(EventStream* stream) {
  MutexLock lock(&mutex_);
  if (shut_down_ || streams_.size() >= kMaxWatchers) return false;
  streams_.insert(stream);
  return true;
}

void ControlService::Remove(EventStream* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
}

}  // namespace ddprun::rendezvous
