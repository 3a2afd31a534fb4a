#include "tests/rendezvous/server/raw_client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/health.grpc.pb.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/wire/byte_buffer.h"

namespace ddprun::rendezvous {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::ByteBuffer Buffer(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

std::shared_ptr<grpc::Channel> NewChannel(int port) {
  (void)PrepareGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps the window small that a slow reader offers
  return grpc::CreateCustomChannel(absl::StrCat("ipv4:127.0.0.1:", port), grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace

struct RawClient::Impl {
  Impl(int port, std::string method)
      : port(port), method(std::move(method)), channel(NewChannel(port)), stub(channel) {}

  // Waits for the one operation in flight.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  }

  const int port;
  const std::string method;
  std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
};

RawClient::RawClient(int port, const std::string& authorization, const std::string& method)
    : impl_(std::make_unique<Impl>(port, method)) {
  if (!authorization.empty()) impl_->context.AddMetadata("authorization", authorization);
}

RawClient::~RawClient() {
  if (impl_->stream != nullptr) {
    impl_->context.TryCancel();
    Finish().IgnoreError();
  }
  impl_->queue.Shutdown();
  impl_->Wait();
}

void RawClient::Open() {
  if (impl_->stream != nullptr) return;
  impl_->stream = impl_->stub.PrepareCall(&impl_->context, impl_->method, &impl_->queue);
  impl_->stream->StartCall(nullptr);
  impl_->Wait();
}

bool RawClient::WriteBytes(const std::string& message) {
  Open();
  impl_->stream->Write(Buffer(message), nullptr);
  return impl_->Wait();
}

std::optional<std::string> RawClient::ReadBytes() {
  Open();
  grpc::ByteBuffer buffer;
  impl_->stream->Read(&buffer, nullptr);
  return impl_->Wait() ? std::make_optional(Bytes(buffer)) : std::nullopt;
}

std::optional<v1::ServerMessage> RawClient::Read() {
  v1::ServerMessage message;
  const std::optional<std::string> bytes = ReadBytes();
  return bytes && message.ParseFromString(*bytes) ? std::make_optional(message) : std::nullopt;
}

void RawClient::HalfClose() {
  Open();
  impl_->stream->WritesDone(nullptr);
  impl_->Wait();
}

absl::Status RawClient::Finish() {
  Open();
  while (ReadBytes().has_value()) {
  }
  grpc::Status status;
  impl_->stream->Finish(&status, nullptr);
  impl_->Wait();
  impl_->stream.reset();
  return FromGrpc(status);
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(const std::unique_ptr<Stub>& stub, const Request& request,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  grpc::ClientContext context;
  Response response;
  const grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

absl::StatusOr<v1::ListJobsResponse> RawClient::ListJobs(int page_size, const std::string& page_token) {
  v1::ListJobsRequest request;
  request.set_page_size(page_size);
  request.set_page_token(page_token);
  return Call(v1::Rendezvous::NewStub(impl_->channel), request, &v1::Rendezvous::Stub::ListJobs);
}

absl::StatusOr<v1::Job> RawClient::GetJob(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return Call(v1::Rendezvous::NewStub(impl_->channel), request, &v1::Rendezvous::Stub::GetJob);
}

absl::StatusOr<std::string> RawClient::Health(const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  DDPRUN_ASSIGN_OR_RETURN(const auto response, Call(grpc::health::v1::Health::NewStub(impl_->channel), request,
                                                    &grpc::health::v1::Health::Stub::Check));
  return grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
}

absl::StatusOr<std::string> RawClient::WatchHealth(const std::string& service) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const auto reader = grpc::health::v1::Health::NewStub(impl_->channel)->Watch(&context, request);
  if (!reader->Read(&response)) return FromGrpc(reader->Finish());
  context.TryCancel();
  grpc::health::v1::HealthCheckResponse more;
  while (reader->Read(&more)) {
  }
  reader->Finish().error_code();
  return grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
}

absl::StatusOr<std::string> RawClient::Reflect() {
  RawClient reflection(impl_->port, "", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  reflection.WriteBytes("\x3A\x01*");  // ServerReflectionRequest{list_services: "*"}
  const std::optional<std::string> answer = reflection.ReadBytes();
  reflection.HalfClose();
  DDPRUN_RETURN_IF_ERROR(reflection.Finish());
  return answer.value_or("");
}

absl::Status RawClient::CallUnknownMethod() {
  return RawClient(impl_->port, "", "/ddprun.v1.Rendezvous/Nothing").Finish();
}

}  // namespace ddprun::rendezvous
