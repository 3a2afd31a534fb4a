#include "rendezvous/ha/etcd_client.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/ha/etcd_problem.h"
#include "rendezvous/wire/byte_buffer.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kPasswordPatience = absl::Seconds(2);
constexpr int kFirstReconnectMs = 20;
constexpr int kLastReconnectMs = 500;
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;

absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!absl::StrContains(text, "-----BEGIN ")) {
    return absl::InvalidArgumentError(absl::StrCat(flag, "=", path, ": can't be read as a PEM file"));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(const EtcdOptions& options) {
  if (options.cert_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError("--etcd-cert and --etcd-key belong together: give both");
  }
  if (options.ca_file.empty()) {
    if (options.cert_file.empty()) return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError("--etcd-cert needs --etcd-cacert, the CA of etcd's certificates");
  }
  const absl::StatusOr<std::string> ca = ReadPem("--etcd-cacert", options.ca_file);
  const absl::StatusOr<std::string> cert = ReadPem("--etcd-cert", options.cert_file);
  const absl::StatusOr<std::string> key = ReadPem("--etcd-key", options.key_file);
  for (const auto* read : {&ca, &cert, &key}) {
    if (!read->ok()) return read->status();
  }
  return grpc::SslCredentials({.pem_root_certs = *ca, .pem_private_key = *key, .pem_cert_chain = *cert});
}

// True for errors after which another member may succeed.
bool IsMemberError(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN: return true;
    default: return false;
  }
}

std::chrono::system_clock::time_point WallDeadline(SteadyTime deadline) {
  const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
  return std::chrono::system_clock::now() + absl::ToChronoMicroseconds(left);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(const EtcdOptions& options) {
  QuietGrpc();
  std::unique_ptr<EtcdClient> client(new EtcdClient(options));
  if (absl::Status status = client->Connect(); !status.ok()) return status;
  return client;
}

absl::Status EtcdClient::Connect() {
  if (options_.endpoints.empty()) return absl::InvalidArgumentError("--etcd names no endpoint");
  const absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = ChannelCredentials(options_);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(options_.patience)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastReconnectMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);  // unlimited: etcd decides how many records it sends at once
  for (const std::string& endpoint : options_.endpoints) {
    const auto channel = grpc::CreateCustomChannel(endpoint, *credentials, arguments);
    members_.push_back(Member{endpoint, etcdserverpb::KV::NewStub(channel), etcdserverpb::Lease::NewStub(channel),
                              etcdserverpb::Auth::NewStub(channel)});
  }
  return absl::OkStatus();
}

std::string EtcdClient::Name() const { return absl::StrJoin(options_.endpoints, ","); }

void EtcdClient::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
}

grpc::Status EtcdClient::Try(const Member& member, SteadyTime deadline, const std::string& token, const Call& call) {
  grpc::ClientContext context;
  context.set_deadline(WallDeadline(deadline));
  if (!token.empty()) context.AddMetadata("token", token);
  {
    MutexLock lock(&mutex_);
    if (stopped_) return grpc::Status(grpc::StatusCode::CANCELLED, "stopped");
    under_way_.insert(&context);
  }
  const grpc::Status status = call(member, &context);
  MutexLock lock(&mutex_);
  under_way_.erase(&context);
  return status;
}

absl::Status EtcdClient::Authenticate(const Member& member, SteadyTime deadline) {
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  etcdserverpb::AuthenticateResponse response;
  // etcd is slow at checking passwords.
  const SteadyTime until = std::min(deadline, SteadyNow() + std::max(options_.patience, kPasswordPatience));
  const grpc::Status status = Try(member, until, "", [&](const Member& m, grpc::ClientContext* context) {
    return m.auth->Authenticate(context, request, &response);
  });
  if (!status.ok()) {
    return absl::UnavailableError(Describe(member, status));
  }
  MutexLock lock(&mutex_);
  token_ = response.token();
  return absl::OkStatus();
}

std::string EtcdClient::Describe(const Member& member, const grpc::Status& status) const {
  return absl::StrCat(member.endpoint, ": ", DescribeEtcdProblem(status.error_message(), !options_.ca_file.empty()));
}

std::vector<std::string> EtcdClient::FindSilentMembers() {
  etcdserverpb::RangeRequest request;
  request.set_key("ddprun");
  etcdserverpb::RangeResponse response;
  std::vector<std::string> silent;
  for (const Member& member : members_) {
    const grpc::Status status =
        Try(member, SteadyNow() + options_.patience, "",
            [&](const Member& m, grpc::ClientContext* context) { return m.kv->Range(context, request, &response); });
    if (!status.ok() && IsMemberError(status)) silent.push_back(Describe(member, status));
  }
  return silent.size() == members_.size() ? std::vector<std::string>() : silent;
}

absl::Status EtcdClient::Run(SteadyTime deadline, const Call& call) {
  std::string last = "no time left to ask";
  for (size_t tries = 0; tries < 3 * members_.size() && SteadyNow() < deadline; ++tries) {
    size_t index = 0;
    std::string token;
    {
      MutexLock lock(&mutex_);
      if (stopped_) return absl::CancelledError("stopped");
      index = current_;
      token = token_;
    }
    const Member& member = members_[index];
    if (!options_.user.empty() && token.empty()) {
      if (absl::Status status = Authenticate(member, deadline); !status.ok()) last = std::string(status.message());
      MutexLock lock(&mutex_);
      token = token_;
    }
    if (options_.user.empty() || !token.empty()) {
      const grpc::Status status = Try(member, std::min(deadline, SteadyNow() + options_.patience), token, call);
      if (status.ok()) return absl::OkStatus();
      last = Describe(member, status);
      const bool old_token = !token.empty() && status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
      if (!old_token && !IsMemberError(status)) {
        return absl::Status(static_cast<absl::StatusCode>(status.error_code()), absl::StrCat("can't use etcd: ", last));
      }
      MutexLock lock(&mutex_);
      if (old_token) token_.clear();
    }
    MutexLock lock(&mutex_);
    if (current_ == index) current_ = (index + 1) % members_.size();
  }
  return absl::UnavailableError(absl::StrCat("can't use etcd: ", last));
}

absl::Status EtcdClient::Range(const etcdserverpb::RangeRequest& request, SteadyTime deadline,
                               etcdserverpb::RangeResponse* response) {
  return Run(deadline, [&](const Member& member, grpc::ClientContext* context) {
    return member.kv->Range(context, request, response);
  });
}

absl::Status EtcdClient::Txn(const etcdserverpb::TxnRequest& request, SteadyTime deadline,
                             etcdserverpb::TxnResponse* response) {
  return Run(deadline, [&](const Member& member, grpc::ClientContext* context) {
    return member.kv->Txn(context, request, response);
  });
}

absl::Status EtcdClient::LeaseGrant(absl::Duration ttl, SteadyTime deadline,
                                    etcdserverpb::LeaseGrantResponse* response) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
  return Run(deadline, [&](const Member& member, grpc::ClientContext* context) {
    return member.lease->LeaseGrant(context, request, response);
  });
}

absl::Status EtcdClient::LeaseKeepAlive(int64_t lease, SteadyTime deadline) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  const absl::Status status = Run(deadline, [&](const Member& member, grpc::ClientContext* context) {
    const auto stream = member.lease->LeaseKeepAlive(context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    context->TryCancel();  // one request per stream, so nothing is left to close
    const grpc::Status end = stream->Finish();
    if (answered) return grpc::Status::OK;
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "no answer") : end;
  });
  if (status.ok() && response.ttl() <= 0) return absl::NotFoundError("the lease is gone");
  return status;
}

absl::Status EtcdClient::LeaseRevoke(int64_t lease, SteadyTime deadline) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  return Run(deadline, [&](const Member& member, grpc::ClientContext* context) {
    return member.lease->LeaseRevoke(context, request, &response);
  });
}

}  // namespace ddprun::rendezvous
