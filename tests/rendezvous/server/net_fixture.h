#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_NET_FIXTURE_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_NET_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/client/grpc_client.h"
#include "rendezvous/client/local_client.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/server.h"
#include "tests/rendezvous/server/test_launcher.h"

namespace ddprun::rendezvous {

// A server of a test, on a free port of the loopback, that can be stopped and started again on the same port with
// an empty memory.
class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}) : options_(std::move(options)) { Start(0); }

  void Stop() {
    server_.reset();
    driver_.reset();
  }
  void Restart() {
    Stop();
    Start(port_);
  }

  int port() const { return port_; }
  Driver& driver() { return *driver_; }
  Server& server() { return *server_; }

  TestLauncher::NewClient Grpc() const { return GrpcTo(port_); }
  static TestLauncher::NewClient GrpcTo(int port, const Credentials& credentials = {}) {
    return [port, credentials](Client::Handler handler) {
      return NewGrpcClient({"127.0.0.1", port}, std::move(handler), absl::Seconds(5), credentials);
    };
  }
  TestLauncher::NewClient Local() const {
    return [driver = driver_.get()](Client::Handler handler) { return NewLocalClient(driver, std::move(handler)); };
  }

 private:
  void Start(int port) {
    driver_ = std::make_unique<Driver>();
    auto server = Server::Start(driver_.get(), {absl::StrCat("127.0.0.1:", port)}, options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->port();
  }

  const ServerOptions options_;
  int port_ = 0;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Server> server_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_NET_FIXTURE_H_
