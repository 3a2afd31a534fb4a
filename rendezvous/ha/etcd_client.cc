#include "rendezvous/ha/etcd_client.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
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

struct Known {
  absl::string_view sign;  // substring of the message of gRPC or etcd
  absl::string_view text;
};

constexpr Known kKnown[] = {
    {"DNS resolution failed", "the host name does not resolve; check --etcd"},
    {"Connection refused", "connection refused; check --etcd, and that etcd runs there"},
    {"Deadline Exceeded", "no answer in time; check --etcd, and that etcd has a leader (etcdctl endpoint status)"},
    {"certificate verify failed",
     "etcd's certificate is not valid here; check --etcd-cacert, and that the certificate is for this host name and "
     "has not expired"},
    {"user name is empty", "etcd asks for a user; set DDPRUN_ETCD_USER=NAME:PASSWORD"},
    {"authentication failed", "wrong user or password; check DDPRUN_ETCD_USER"},
    {"authentication is not enabled", "etcd has no authentication; unset DDPRUN_ETCD_USER"},
    {"permission denied",
     "permission denied; grant the user of DDPRUN_ETCD_USER readwrite permission for the prefix --etcd-prefix"},
    {"database space exceeded",
     "etcd's database is full; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"},
};

constexpr char kNoTls[] = "etcd closed the connection; if it uses TLS, give --etcd-cacert";
constexpr char kWithTls[] =
    "the TLS handshake failed; check --etcd-cacert, that etcd uses TLS, and --etcd-cert and --etcd-key if it asks for "
    "a certificate";

}  // namespace

std::string DescribeEtcdProblem(absl::string_view message, bool has_tls) {
  for (const Known& known : kKnown) {
    if (absl::StrContains(message, known.sign)) return std::string(known.text);
  }
  for (const absl::string_view sign :
       {"Socket closed", "Connection reset", "handshake failed", "Handshake read failed"}) {
    if (absl::StrContains(message, sign)) return has_tls ? kWithTls : kNoTls;
  }
  message = GrpcCause(message);
  absl::ConsumePrefix(&message, "etcdserver: ");
  return std::string(message);
}

// The context of a call, which Stop cancels.
class EtcdClient::Context {
 public:
  explicit Context(EtcdClient* client) : client_(client) {
    MutexLock lock(&client_->mutex_);
    if (!client_->token_.empty()) context_.AddMetadata("token", client_->token_);
    client_->under_way_.insert(&context_);
    if (client_->stopped_) context_.TryCancel();
  }
  ~Context() {
    MutexLock lock(&client_->mutex_);
    client_->under_way_.erase(&context_);
  }
  grpc::ClientContext* get() { return &context_; }

 private:
  EtcdClient* const client_;
  grpc::ClientContext context_;
};

// A bidirectional stream to one member. Thread-compatible; Stop ends it.
template <typename Request, typename Response>
class EtcdClient::Stream {
 public:
  // `start`: the stub's method, called with a context and a queue.
  template <typename Start>
  Stream(EtcdClient* client, Start start) : context_(client) {
    context_.get()->set_initial_metadata_corked(true);  // the first request opens the stream
    rpc_ = start(context_.get(), &queue_);
  }
  ~Stream() {
    context_.get()->TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) continue;
  }

  // REQUIRES: a message was received since the last Send.
  void Send(const Request& request) {
    write_.pending = true;
    rpc_->Write(request, &write_);
  }

  // Waits for the next message.
  //   DEADLINE_EXCEEDED  there is none yet.
  //   others             the stream is over.
  grpc::Status Receive(std::chrono::system_clock::time_point deadline, Response* response) {
    if (!std::exchange(read_.pending, true)) rpc_->Read(&received_, &read_);
    if (!Await(&write_, deadline) || !Await(&read_, deadline)) {
      return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
    }
    if (read_.ok) {
      *response = std::move(received_);
      return grpc::Status::OK;
    }
    finish_.pending = true;
    rpc_->Finish(&end_, &finish_);
    if (!Await(&finish_, deadline) || end_.ok() || end_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "etcd ended the stream");
    }
    return end_;
  }

 private:
  struct Operation {
    bool pending = false;
    bool ok = false;
  };

  bool Await(const Operation* operation, std::chrono::system_clock::time_point deadline) {
    while (operation->pending) {
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return false;
      *static_cast<Operation*>(tag) = {.pending = false, .ok = ok};
    }
    return true;
  }

  Context context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<Request, Response>> rpc_;
  Operation write_, read_, finish_;
  Response received_;
  grpc::Status end_;
};

EtcdClient::EtcdClient(const EtcdOptions& options) : options_(options) {}
EtcdClient::~EtcdClient() = default;

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(const EtcdOptions& options) {
  DDPRUN_RETURN_IF_ERROR(PrepareGrpc());
  std::unique_ptr<EtcdClient> client(new EtcdClient(options));
  DDPRUN_RETURN_IF_ERROR(client->Connect());
  return client;
}

absl::Status EtcdClient::Connect() {
  if (options_.endpoints.empty()) return absl::InvalidArgumentError("--etcd names no endpoint");
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials, ChannelCredentials(options_));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(options_.patience)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastReconnectMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);  // unlimited: etcd decides how many records it sends at once
  for (const std::string& endpoint : options_.endpoints) {
    const auto channel = grpc::CreateCustomChannel(endpoint, credentials, arguments);
    members_.push_back(Member{endpoint, etcdserverpb::KV::NewStub(channel), etcdserverpb::Lease::NewStub(channel),
                              etcdserverpb::Watch::NewStub(channel), etcdserverpb::Auth::NewStub(channel)});
  }
  return absl::OkStatus();
}

std::string EtcdClient::Name() const { return absl::StrJoin(options_.endpoints, ","); }

void EtcdClient::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
}

grpc::Status EtcdClient::Try(const Member& member, SteadyTime deadline, const Call& call) {
  Context context(this);
  context.get()->set_deadline(WallDeadline(deadline));
  return call(member, context.get());
}

absl::Status EtcdClient::Authenticate(const Member& member, SteadyTime deadline) {
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  etcdserverpb::AuthenticateResponse response;
  // etcd is slow at checking passwords.
  const SteadyTime until = std::min(deadline, SteadyNow() + std::max(options_.patience, kPasswordPatience));
  const grpc::Status status = Try(member, until, [&](const Member& m, grpc::ClientContext* context) {
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
        Try(member, SteadyNow() + options_.patience,
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
      const grpc::Status status = Try(member, std::min(deadline, SteadyNow() + options_.patience), call);
      if (status.ok()) return absl::OkStatus();
      last = Describe(member, status);
      const bool old_token = !token.empty() && status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
      if (!old_token && !IsMemberError(status)) {
        return absl::Status(static_cast<absl::StatusCode>(status.error_code()), absl::StrCat("can't use etcd: ", last));
      }
      MutexLock lock(&mutex_);
      if (old_token) token_.clear();
    }
    LeaveMember(index);
  }
  return absl::UnavailableError(absl::StrCat("can't use etcd: ", last));
}

void EtcdClient::LeaveMember(size_t index) {
  MutexLock lock(&mutex_);
  if (current_ == index) current_ = (index + 1) % members_.size();
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
  std::unique_ptr<KeepAliveStream> stream;
  {
    MutexLock lock(&mutex_);
    stream.swap(keep_alive_);
  }
  const absl::Status status = Run(deadline, [&](const Member& member, grpc::ClientContext* context) {
    if (stream == nullptr) {
      stream = std::make_unique<KeepAliveStream>(this, [&](grpc::ClientContext* c, grpc::CompletionQueue* queue) {
        return member.lease->AsyncLeaseKeepAlive(c, queue, nullptr);
      });
    }
    stream->Send(request);
    const grpc::Status received = stream->Receive(context->deadline(), &response);
    // A late answer must not be taken for the answer to a later request.
    if (!received.ok()) stream.reset();
    return received;
  });
  {
    MutexLock lock(&mutex_);
    stream.swap(keep_alive_);
  }
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

absl::Status EtcdClient::AwaitChange(const std::string& key, int64_t revision, SteadyTime deadline) {
  size_t index = 0;
  {
    MutexLock lock(&mutex_);
    index = current_;
  }
  WatchStream stream(this, [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
    context->AddMetadata("hasleader", "true");  // the member ends the stream when it has no leader
    return members_[index].watch->AsyncWatch(context, queue, nullptr);
  });
  etcdserverpb::WatchRequest create, progress;
  create.mutable_create_request()->set_key(key);
  create.mutable_create_request()->set_start_revision(revision + 1);
  progress.mutable_progress_request();
  etcdserverpb::WatchResponse response;
  for (stream.Send(create); stream.Receive(WallDeadline(SteadyNow() + options_.patience), &response).ok();
       stream.Send(progress)) {
    grpc::Status next;
    while (next.ok()) {
      if (response.events_size() > 0 || response.canceled()) return absl::OkStatus();
      next = stream.Receive(WallDeadline(std::min(deadline, SteadyNow() + 2 * options_.patience)), &response);
    }
    if (SteadyNow() >= deadline) return absl::OkStatus();
    if (next.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) break;
  }
  LeaveMember(index);
  MutexLock lock(&mutex_);
  return stopped_ ? absl::CancelledError("stopped") : absl::UnavailableError("the member does not serve the watch");
}

}  // namespace ddprun::rendezvous
