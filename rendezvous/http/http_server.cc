#include "rendezvous/http/http_server.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "rendezvous/server/listen.h"
#include "rendezvous/wire/credential_files.h"

// The only file that includes Boost, which takes half a minute to compile. Boost's throwing calls are given an error
// code instead; exceptions that remain possible (memory) are caught in Run().
namespace ddprun::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Parser = beast::http::request_parser<beast::http::string_body>;
using IoDone = std::function<void(error_code, size_t)>;

// A peer that acknowledges nothing is disconnected after this time.
constexpr absl::Duration kUserTimeout = absl::Seconds(60);
constexpr absl::Duration kLinger = absl::Seconds(1);
constexpr absl::Duration kAcceptPause = absl::Milliseconds(200);
constexpr absl::Duration kCertificateAge = absl::Seconds(1);
constexpr char kStreamComment[] = ":\n\n";

// A connection with or without TLS.
class Socket {
 public:
  Socket(tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
      : tcp_(std::move(socket)), context_(std::move(context)) {
    if (context_ != nullptr) tls_.emplace(tcp_, *context_);
  }

  void Handshake(std::function<void(error_code)> done) {
    if (!tls_) return done(error_code());
    tls_->async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void Read(asio::mutable_buffer into, IoDone done) {
    if (tls_) return tls_->async_read_some(into, std::move(done));
    tcp_.async_read_some(into, std::move(done));
  }
  void Write(const std::string& text, IoDone done) {
    if (tls_) return asio::async_write(*tls_, asio::buffer(text), std::move(done));
    asio::async_write(tcp_, asio::buffer(text), std::move(done));
  }
  tcp::socket& plain() { return tcp_; }

 private:
  tcp::socket tcp_;
  std::shared_ptr<asio::ssl::context> context_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
};

std::string AddressOf(const tcp::endpoint& end) {
  const std::string text = end.address().to_string();
  return std::string(absl::StripPrefix(text, "::ffff:"));
}

Response ErrorResponse(int status, absl::string_view text) {
  return Response{.status = status, .body = absl::StrCat(text, "\n")};
}

Response ResponseTo(const error_code& error) {
  using Error = beast::http::error;
  if (error == Error::header_limit) return ErrorResponse(431, "the request's header is too large");
  if (error == Error::body_limit) return ErrorResponse(413, "the request's body is too large");
  return ErrorResponse(400, "malformed request");
}

}  // namespace

// Everything runs on the server's thread, except for Wake, counts and the destructor.
class Server::Impl {
 public:
  Impl(const rendezvous::Credentials& credentials, Handler handler, const ServerLimits& limits)
      : credentials_(credentials), handler_(std::move(handler)), limits_(limits), tls_files_(credentials) {}
  ~Impl();

  absl::Status Start(const Endpoint& address);
  int port() const { return port_; }
  void Wake();
  Counts counts() const { return {connections_count_, streams_count_, refused_}; }

 private:
  class Connection;
  friend class Connection;

  void Run();
  void Accept(tcp::acceptor* acceptor);
  void Take(tcp::socket socket);
  absl::Status RefreshCertificate();
  void Stop();
  void Count();

  const rendezvous::Credentials credentials_;
  const Handler handler_;
  const ServerLimits limits_;
  int port_ = 0;
  asio::io_context io_{1};
  std::vector<tcp::acceptor> acceptors_;
  std::vector<tcp::acceptor*> paused_;
  asio::steady_timer accept_pause_{io_};  // shared by all paused acceptors
  asio::steady_timer gather_{io_};
  bool stopping_ = false;
  rendezvous::TlsFiles tls_files_;
  rendezvous::TlsTexts tls_texts_;
  std::shared_ptr<asio::ssl::context> tls_context_;
  SteadyTime tls_checked_ = SteadyTime::InfinitePast();
  std::set<std::shared_ptr<Connection>> connections_;
  std::set<Connection*> streams_;
  std::list<Connection*> waiting_;  // connections waiting for a request, longest waiting first
  std::atomic<bool> woken_{false};
  std::atomic<size_t> connections_count_{0};
  std::atomic<size_t> streams_count_{0};
  std::atomic<uint64_t> refused_{0};
  std::thread thread_;
};

//   kWaiting ---request---> kWriting ---written---> kWaiting, kLingering (after an error), kStreaming
//   kStreaming ---end of the body---> kLingering
//   Every state can end in kClosed: the client disconnects, a timeout expires or the server stops.
class Server::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl* server, tcp::socket socket, std::shared_ptr<asio::ssl::context> tls)
      : server_(server), socket_(std::move(socket), std::move(tls)), timer_(server->io_) {}

  void Start() {
    error_code ignored;
    peer_ = socket_.plain().remote_endpoint(ignored);
    own_ = socket_.plain().local_endpoint(ignored);
    socket_.plain().set_option(tcp::no_delay(true), ignored);
    Wait();
    Arm(server_->limits_.request, &Connection::Close);
    socket_.Handshake([self = shared_from_this()](error_code error) {
      if (self->state_ == State::kClosed) return;
      error ? self->Close() : self->Parse();
    });
  }

  void Close() {
    if (state_ == State::kClosed) return;
    const std::shared_ptr<Connection> self = shared_from_this();
    EndWait();
    state_ = State::kClosed;
    more_ = nullptr;
    error_code ignored;
    timer_.cancel();
    socket_.plain().shutdown(tcp::socket::shutdown_both, ignored);
    socket_.plain().close(ignored);
    server_->streams_.erase(this);
    server_->connections_.erase(self);
    server_->Count();
  }

  // Sends available data, unless a write is in flight.
  void Pull() {
    if (state_ != State::kStreaming || writing_) return;
    Send(more_());
  }

 private:
  enum class State { kWaiting, kWriting, kStreaming, kLingering, kClosed };

  void Arm(absl::Duration after, void (Connection::*then)()) {
    timer_.expires_after(absl::ToChronoNanoseconds(after));
    timer_.async_wait([self = shared_from_this(), then](error_code error) {
      // The timer may have been armed again while this call was on its way.
      if (error || self->state_ == State::kClosed) return;
      if (self->timer_.expiry() <= std::chrono::steady_clock::now()) (self.get()->*then)();
    });
  }

  void Wait() {
    state_ = State::kWaiting;
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(server_->limits_.header_bytes);
    parser_->body_limit(server_->limits_.body_bytes);
    place_ = server_->waiting_.insert(server_->waiting_.end(), this);
  }
  void EndWait() {
    if (state_ == State::kWaiting) server_->waiting_.erase(place_);
  }

  void Read() {
    socket_.Read(asio::buffer(in_), [self = shared_from_this()](error_code error, size_t bytes) {
      if (self->state_ == State::kClosed) return;
      if (error) return self->Close();
      self->input_.append(self->in_.data(), bytes);
      self->Parse();
    });
  }

  // Parses the data received so far.
  void Parse() {
    while (true) {
      error_code error;
      const size_t used = input_.empty() ? 0 : parser_->put(asio::buffer(input_), error);
      input_.erase(0, used);
      if (error && error != beast::http::error::need_more) return Answer(ResponseTo(error), false, false);
      if (parser_->is_done()) return Serve();
      if (error || used == 0 || input_.empty()) return Read();
    }
  }

  void Serve() {
    const auto& message = parser_->get();
    Request request;
    request.method = std::string(message.method_string());
    request.target = std::string(message.target());
    for (const auto& field : message) {
      request.headers.emplace_back(absl::AsciiStrToLower(std::string(field.name_string())), std::string(field.value()));
    }
    request.body = message.body();
    request.peer = AddressOf(peer_);
    request.peer_port = peer_.port();
    request.own = AddressOf(own_);
    request.own_port = own_.port();
    const bool head = request.method == "HEAD";
    if (head) request.method = "GET";
    const bool keep_alive = message.keep_alive();
    Answer(server_->handler_(request), keep_alive, head);
  }

  void Answer(Response response, bool keep_alive, bool head) {
    EndWait();
    if (head) response.more = nullptr;
    if (response.more != nullptr && server_->streams_.size() >= server_->limits_.streams) {
      response = ErrorResponse(503, "too many clients receive events; try again later");
    }
    keep_alive = keep_alive && response.more == nullptr && !server_->stopping_;
    out_ = FormatHead(response, keep_alive);
    if (!head) out_ += response.body;
    more_ = std::move(response.more);
    ends_ = response.ends;
    if (more_ != nullptr) server_->streams_.insert(this);
    server_->Count();
    state_ = State::kWriting;
    Arm(server_->limits_.write, &Connection::Close);
    socket_.Write(out_, [self = shared_from_this(), keep_alive](error_code error, size_t) {
      if (self->state_ == State::kClosed) return;
      if (error) return self->Close();
      if (self->more_ != nullptr) return self->Stream();
      if (!keep_alive) return self->Linger();
      self->Wait();
      self->Arm(self->server_->limits_.idle, &Connection::Close);
      self->Parse();
    });
  }

  // Reads whatever the client still sends, because unread bytes would make the kernel reset the connection, and the
  // client would not see the answer.
  void Linger() {
    state_ = State::kLingering;
    error_code ignored;
    socket_.plain().shutdown(tcp::socket::shutdown_send, ignored);
    Arm(kLinger, &Connection::Close);
    Drain();
  }
  void Drain() {
    socket_.plain().async_read_some(asio::buffer(in_), [self = shared_from_this()](error_code error, size_t) {
      if (self->state_ == State::kClosed) return;
      error ? self->Close() : self->Drain();
    });
  }

  void Stream() {
    state_ = State::kStreaming;
    sent_ = SteadyNow();
    error_code ignored;
    socket_.plain().set_option(asio::socket_base::send_buffer_size(server_->limits_.stream_buffer_bytes), ignored);
    // The client has nothing more to send: any data, or the end of its stream, closes the connection.
    socket_.Read(asio::buffer(in_), [self = shared_from_this()](error_code, size_t) { self->Close(); });
    Pull();
  }

  // Ends the body, and waits until the client has taken it and closes the connection (Stream reads).
  void AwaitClose() {
    state_ = State::kLingering;
    error_code ignored;
    socket_.plain().shutdown(tcp::socket::shutdown_send, ignored);
    Arm(kLinger, &Connection::Close);
  }

  void Comment() { Send(kStreamComment); }

  void Send(std::string text) {
    // Wake-ups for events of other jobs must not postpone the comment.
    if (text.empty()) return Arm(sent_ + server_->limits_.stream_comment - SteadyNow(), &Connection::Comment);
    out_ = std::move(text);
    writing_ = true;
    Arm(server_->limits_.stream_write, &Connection::Close);
    socket_.Write(out_, [self = shared_from_this()](error_code error, size_t) {
      if (self->state_ == State::kClosed) return;
      self->writing_ = false;
      self->sent_ = SteadyNow();
      if (!error && self->ends_) return self->AwaitClose();
      error ? self->Close() : self->Pull();
    });
  }

  Impl* const server_;
  Socket socket_;
  asio::steady_timer timer_;
  State state_ = State::kClosed;
  tcp::endpoint peer_, own_;
  std::list<Connection*>::iterator place_;  // position in waiting_; valid in kWaiting
  std::optional<Parser> parser_;
  std::array<char, 4096> in_;
  std::string input_;  // read but not parsed
  std::string out_;    // being written
  std::function<std::string()> more_;
  bool ends_ = false;     // see Response
  bool writing_ = false;  // a part of an endless response is being written
  SteadyTime sent_;       // when the last such part was taken
};

Server::Impl::~Impl() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] { Stop(); });
  thread_.join();
}

absl::Status Server::Impl::Start(const Endpoint& address) {
  if (!credentials_.tls_cert.empty()) DDPRUN_RETURN_IF_ERROR(RefreshCertificate());
  DDPRUN_ASSIGN_OR_RETURN(rendezvous::Listeners listeners, rendezvous::Listen(address, kUserTimeout));
  port_ = listeners.port;
  while (!listeners.fds.empty()) {
    const int fd = listeners.fds.back();
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
    error_code error;
    acceptors_.emplace_back(io_);
    acceptors_.back().assign(bound.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), fd, error);
    if (error) return absl::InternalError(absl::StrCat("can't wait for HTTP connections: ", error.message()));
    listeners.fds.pop_back();  // now owned by the acceptor
  }
  for (tcp::acceptor& acceptor : acceptors_) Accept(&acceptor);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Server::Impl::Run() {
  while (true) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      // The connection that it interrupted is closed by its timer.
      Log(LogLevel::kError, absl::StrCat("HTTP: ", error.what()));
    }
  }
}

void Server::Impl::Accept(tcp::acceptor* acceptor) {
  acceptor->async_accept([this, acceptor](error_code error, tcp::socket socket) {
    if (stopping_) return;
    if (!error) {
      Take(std::move(socket));
      return Accept(acceptor);
    }
    // Usually no descriptor is left; the error would recur at once. All failing acceptors share one timer.
    paused_.push_back(acceptor);
    if (paused_.size() > 1) return;
    accept_pause_.expires_after(absl::ToChronoNanoseconds(kAcceptPause));
    accept_pause_.async_wait([this](error_code) {
      if (stopping_) return;
      for (tcp::acceptor* const paused : std::exchange(paused_, {})) Accept(paused);
    });
  });
}

void Server::Impl::Take(tcp::socket socket) {
  if (!credentials_.tls_cert.empty()) {
    const absl::Status status = RefreshCertificate();
    if (!status.ok())
      Log(LogLevel::kWarning, absl::StrCat("HTTP continues with the old certificate: ", status.message()));
  }
  if (connections_.size() >= limits_.connections) {
    ++refused_;
    if (waiting_.empty()) return;  // the new one is closed
    waiting_.front()->Close();
  }
  auto connection = std::make_shared<Connection>(this, std::move(socket), tls_context_);
  connections_.insert(connection);
  Count();
  connection->Start();
}

absl::Status Server::Impl::RefreshCertificate() {
  const SteadyTime now = SteadyNow();
  if (now - tls_checked_ < kCertificateAge) return absl::OkStatus();
  tls_checked_ = now;
  DDPRUN_ASSIGN_OR_RETURN(rendezvous::TlsTexts texts, tls_files_.Read());
  if (tls_context_ != nullptr && texts == tls_texts_) return absl::OkStatus();
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  error_code error;
  context->use_certificate_chain(asio::buffer(texts.cert), error);
  if (!error) context->use_private_key(asio::buffer(texts.key), asio::ssl::context::pem, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("can't use ", credentials_.tls_cert, ": ", error.message()));
  tls_texts_ = std::move(texts);
  tls_context_ = std::move(context);
  return absl::OkStatus();
}

void Server::Impl::Wake() {
  // A stream that begins now is counted before it first looks for data.
  if (streams_count_ == 0 || woken_.exchange(true)) return;
  asio::post(io_, [this] {
    gather_.expires_after(absl::ToChronoNanoseconds(limits_.stream_gather));
    gather_.async_wait([this](error_code) {
      woken_ = false;
      const std::set<Connection*> streams = streams_;
      for (Connection* stream : streams) stream->Pull();
    });
  });
}

void Server::Impl::Stop() {
  stopping_ = true;
  error_code ignored;
  for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ignored);
  accept_pause_.cancel();
  gather_.cancel();
  const std::set<std::shared_ptr<Connection>> connections = connections_;
  for (const std::shared_ptr<Connection>& connection : connections) connection->Close();
}

void Server::Impl::Count() {
  connections_count_ = connections_.size();
  streams_count_ = streams_.size();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Endpoint& address,
                                                      const rendezvous::Credentials& credentials, Handler handler,
                                                      const ServerLimits& limits) {
  auto impl = std::make_unique<Impl>(credentials, std::move(handler), limits);
  DDPRUN_RETURN_IF_ERROR(impl->Start(address));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
void Server::Wake() { impl_->Wake(); }
Server::Counts Server::counts() const { return impl_->counts(); }

}  // namespace ddprun::http
