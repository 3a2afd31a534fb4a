// A real HTTP server over sockets, with misbehaving clients.
#include "rendezvous/http/http_server.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "tests/rendezvous/http/http_client.h"
#include "tests/security/certificates.h"
#include "tests/testing/process.h"

namespace {

// Makes accept() fail as if there were no file descriptors.
struct {
  std::atomic<bool> no_descriptors = false;
  std::atomic<int> failed = 0;
} accepts;

}  // namespace

extern "C" int accept(int fd, sockaddr* address, socklen_t* size) {
  if (!accepts.no_descriptors) return accept4(fd, address, size, 0);
  ++accepts.failed;
  errno = EMFILE;
  return -1;
}

namespace ddprun::http {
namespace {

using testing::Eventually;
using testing::HttpClient;
using testing::StatusOf;

// The server echoes requests. "/large": 8 MiB. "/stream": a stream of the parts given to PushPart. "/flood": an endless
// stream.
class HttpServerTest : public ::testing::Test {
 protected:
  void Start(ServerLimits limits = {}, const rendezvous::Credentials& credentials = {}) {
    auto started = Server::Start(
        {"127.0.0.1", 0}, credentials, [this](const Request& request) { return Handle(request); }, limits);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  Response Handle(const Request& request) {
    if (request.target == "/large") return {.body = std::string(8 << 20, 'x')};
    if (request.target == "/flood") {
      return {.more = [this] {
        pulled_ += 65536;
        return std::string(65536, 'x');
      }};
    }
    if (request.target == "/later") return {.more = [this] { return TakePart(); }, .ends = true};
    if (request.target == "/stream") return {.body = "first\n", .more = [this] { return TakePart(); }};
    return {.body =
                absl::StrCat(request.method, " ", request.target, " ", request.Header("x-test"), " ", request.body)};
  }
  std::string TakePart() {
    MutexLock lock(&mutex_);
    return std::exchange(part_, "");
  }
  void PushPart(const std::string& part) {
    {
      MutexLock lock(&mutex_);
      part_ = part;
    }
    server_->Wake();
  }
  int port() const { return server_->port(); }

  Mutex mutex_;
  std::string part_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> pulled_{0};
  std::unique_ptr<Server> server_;
};

TEST_F(HttpServerTest, Requests_OnOneConnection_AreAnsweredInOrder) {
  Start();
  HttpClient client(port());
  EXPECT_TRUE(absl::EndsWith(client.Get("/a", "X-Test: one\r\n"), "\r\n\r\nGET /a one "));
  client.Send("GET /b HTTP/1.1\r\n\r\nPOST /c HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyHEAD /d HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(absl::EndsWith(client.Response(), "GET /b  "));
  EXPECT_TRUE(absl::EndsWith(client.Response(), "POST /c  body"));
  const std::string head = client.Response(true);
  EXPECT_TRUE(absl::StrContains(head, "Content-Length: 8\r\n")) << head;  // "GET /d  "
  for (const char byte : std::string("GET /slow HTTP/1.1\r\n\r\n")) client.Send(std::string(1, byte));
  EXPECT_TRUE(absl::EndsWith(client.Response(), "GET /slow  "));
  client.Send("GET /e HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(absl::EndsWith(client.Response(), "GET /e  "));
  EXPECT_TRUE(client.AwaitClosed());
}

TEST_F(HttpServerTest, LargeResponse_ArrivesWhole) {
  Start();
  HttpClient client(port());
  EXPECT_EQ(client.Get("/large").size() >> 20, 8);
  EXPECT_EQ(StatusOf(client.Get("/a")), 200);
}

TEST_F(HttpServerTest, BadRequests_AreAnsweredAndTheConnectionClosed) {
  Start();
  const struct {
    std::string request;
    int status;
  } cases[] = {
      {"nonsense\r\n\r\n", 400},
      {std::string("\x16\x03\x01\x02\x00\x01", 6) + "\r\n\r\n", 400},  // a TLS client
      {"GET / HTTP/2.0\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"GET /" + std::string(20000, 'x') + " HTTP/1.1\r\n\r\n", 431},
      {"GET / HTTP/1.1\r\nX: " + std::string(13000, 'x') + "\r\n\r\n", 431},
      {"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n" + std::string(0x2000, 'x') + "\r\n0\r\n\r\n",
       413},
  };
  for (const auto& c : cases) {
    HttpClient client(port());
    EXPECT_EQ(StatusOf(client.Ask(c.request)), c.status) << c.request.substr(0, 60);
    client.Close();
  }
  HttpClient client(port());
  client.Ask("nonsense\r\n\r\n");
  EXPECT_TRUE(client.AwaitClosed());
}

TEST_F(HttpServerTest, SilentClients_AreDisconnected) {
  Start({.request = absl::Milliseconds(50), .idle = absl::Milliseconds(50)});
  HttpClient silent(port());
  EXPECT_TRUE(silent.AwaitClosed());
  HttpClient half(port());
  half.Send("GET / HT");
  EXPECT_TRUE(half.AwaitClosed());
  HttpClient idle(port());
  EXPECT_EQ(StatusOf(idle.Get("/a")), 200);
  EXPECT_TRUE(idle.AwaitClosed());
}

TEST_F(HttpServerTest, TooManyConnections_TheLongestSilentMakesRoom) {
  Start({.connections = 3});
  HttpClient first(port());
  HttpClient stream(port());
  stream.Send("GET /stream HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(stream.ReadUntil("first\n"));
  HttpClient third(port());
  EXPECT_EQ(StatusOf(third.Get("/a")), 200);
  HttpClient fourth(port());
  EXPECT_EQ(StatusOf(fourth.Get("/a")), 200);
  EXPECT_TRUE(first.AwaitClosed());
  EXPECT_EQ(StatusOf(third.Get("/a")), 200);
  PushPart("still here\n");
  EXPECT_TRUE(stream.ReadUntil("still here\n"));
  EXPECT_EQ(server_->counts().refused, 1);
  EXPECT_EQ(server_->counts().connections, 3);
}

TEST_F(HttpServerTest, Stream_NewEvents_AreSentUntilTheEnd) {
  Start({.streams = 1, .stream_comment = absl::Milliseconds(20)});
  HttpClient client(port());
  client.Send("GET /stream HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("first\n"));
  EXPECT_FALSE(absl::StrContains(client.input(), "Content-Length"));
  PushPart("second\n");
  EXPECT_TRUE(client.ReadUntil("second\n"));
  EXPECT_TRUE(client.ReadUntil(":\n\n:\n\n"));  // nothing comes
  PushPart("third\n");
  EXPECT_TRUE(client.ReadUntil("third\n"));
  HttpClient second(port());
  EXPECT_EQ(StatusOf(second.Get("/stream")), 503);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return server_->counts().streams == 0; }));
}

TEST_F(HttpServerTest, LaterAnswer_EndsTheConnection) {
  Start();
  HttpClient client(port());
  client.Send("GET /later HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("Connection: close\r\n\r\n"));
  PushPart("the answer");
  ASSERT_TRUE(client.ReadUntil("the answer"));
  EXPECT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(Eventually([&] { return server_->counts().streams == 0; }));
}

// Events of other jobs wake all streams.
TEST_F(HttpServerTest, Stream_OthersAreBusy_SilentOneGetsComments) {
  Start({.stream_gather = absl::Milliseconds(5), .stream_comment = absl::Milliseconds(50)});
  HttpClient client(port());
  client.Send("GET /stream HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("first\n"));
  std::atomic<bool> done = false;
  std::thread others([&] {
    while (!done) {
      server_->Wake();
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(client.ReadUntil(":\n\n:\n\n"));
  done = true;
  others.join();
}

TEST_F(HttpServerTest, NoDescriptors_ListenersTryAgainAfterAPause) {
  auto started = Server::Start({"localhost", 0}, {}, [this](const Request& request) { return Handle(request); });
  ASSERT_TRUE(started.ok()) << started.status();
  server_ = *std::move(started);
  accepts.no_descriptors = true;
  HttpClient ipv4(port());
  const int ipv6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port());
  address.sin6_addr = in6addr_loopback;
  const bool both = connect(ipv6, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const SteadyTime began = SteadyNow();
  EXPECT_TRUE(Eventually([&] { return accepts.failed >= 8; }));
  const absl::Duration took = SteadyNow() - began;
  accepts.no_descriptors = false;
  EXPECT_EQ(StatusOf(ipv4.Get("/a")), 200);
  close(ipv6);
  if (!both) GTEST_SKIP() << "localhost has one address";
  // Both listeners failed four times, with three pauses.
  EXPECT_GE(took, absl::Milliseconds(500));
}

TEST_F(HttpServerTest, Stream_ReaderThatDoesNotRead_IsDisconnectedAndCostsLittle) {
  Start({.stream_write = absl::Milliseconds(200)});
  HttpClient client(port());
  client.Send("GET /flood HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return pulled_ > 0; }));
  EXPECT_TRUE(Eventually([&] { return server_->counts().streams == 0; }));
  EXPECT_LT(pulled_, 8 << 20);
}

TEST_F(HttpServerTest, Shutdown_ClosesAllConnections) {
  Start();
  HttpClient idle(port());
  EXPECT_EQ(StatusOf(idle.Get("/a")), 200);
  HttpClient stream(port());
  stream.Send("GET /stream HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(stream.ReadUntil("first\n"));
  HttpClient half(port());
  half.Send("GET /lar");
  server_.reset();
  EXPECT_TRUE(idle.AwaitClosed());
  EXPECT_TRUE(stream.AwaitClosed());
  EXPECT_TRUE(half.AwaitClosed());
}

TEST_F(HttpServerTest, SamePort_IsRefused) {
  Start();
  const auto second = Server::Start({"127.0.0.1", port()}, {}, [](const Request&) { return Response(); });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
}

// The response over TLS and the serial number of the server's certificate; empty without a connection.
std::pair<std::string, std::string> AskOverTls(int port, const std::string& ca) {
  std::pair<std::string, std::string> answer;
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_load_verify_locations(context, ca.c_str(), nullptr);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  BIO* const bio = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(bio, absl::StrCat("127.0.0.1:", port).c_str());
  const std::string request = "GET /tls HTTP/1.1\r\nConnection: close\r\n\r\n";
  if (BIO_do_connect(bio) == 1 && BIO_write(bio, request.data(), request.size()) > 0) {
    char bytes[4096];
    for (int n; (n = BIO_read(bio, bytes, sizeof(bytes))) > 0;) answer.first.append(bytes, n);
    SSL* ssl = nullptr;
    BIO_get_ssl(bio, &ssl);
    X509* const certificate = SSL_get1_peer_certificate(ssl);
    char serial[64] = "";
    if (BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr)) {
      BN_bn2binpad(number, reinterpret_cast<unsigned char*>(serial), 32);
      BN_free(number);
    }
    answer.second = std::string(serial, 32);
    X509_free(certificate);
  }
  BIO_free_all(bio);
  SSL_CTX_free(context);
  return answer;
}

TEST_F(HttpServerTest, Tls_UsesTheCertificateAndTakesANewOne) {
  const std::string folder = testing::NewFolder("http_tls");
  testing::TestCa ca(folder);
  ca.Issue("server", "IP:127.0.0.1");
  Start({}, {.tls_cert = ca.cert("server"), .tls_key = ca.key("server")});
  const auto [response, serial] = AskOverTls(port(), ca.ca());
  EXPECT_TRUE(absl::EndsWith(response, "GET /tls  ")) << response;
  HttpClient plain(port());
  plain.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(plain.AwaitClosed());
  EXPECT_FALSE(absl::StrContains(plain.input(), "HTTP/1.1"));
  ca.Issue("server", "IP:127.0.0.1");
  const std::string old = serial;
  EXPECT_TRUE(Eventually([&] {
    const auto next = AskOverTls(port(), ca.ca());
    return !next.second.empty() && next.second != old;
  }));
}

TEST_F(HttpServerTest, Tls_BadCertificate_IsRefused) {
  const std::string folder = testing::NewFolder("http_bad_tls");
  testing::WriteFile(folder + "/bad.crt", "no certificate");
  const auto server = Server::Start({"127.0.0.1", 0}, {.tls_cert = folder + "/bad.crt", .tls_key = folder + "/bad.crt"},
                                    [](const Request&) { return Response(); });
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << server.status();
}

}  // namespace
}  // namespace ddprun::http
