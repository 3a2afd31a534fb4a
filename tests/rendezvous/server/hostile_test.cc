// Peers that do not speak gRPC at all: the server's process neither crashes nor grows, and still serves.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/tcp_proxy.h"

// The sanitizers' allocators keep freed memory for a while, but know how much is in use.
extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace ddprun::rendezvous {
namespace {

int64_t UsedBytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string RandomBytes(std::mt19937* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

// How gRPC's own clients begin, so that the random bytes after it reach the frame parser.
const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kSettings(std::string("\0\0\0\x04\0\0\0\0\0", 9));

std::string RandomFrame(std::mt19937* random) {
  const size_t size = (*random)() % 300;
  std::string frame;
  frame.push_back(0);
  frame.push_back(static_cast<char>(size >> 8));
  frame.push_back(static_cast<char>(size));
  frame.push_back(static_cast<char>((*random)() % 12));  // type
  frame.push_back(static_cast<char>((*random)()));       // flags
  frame += std::string("\0\0\0", 3);
  frame.push_back(static_cast<char>((*random)() % 8));  // stream
  return frame + RandomBytes(random, size);
}

void Throw(int port, const std::string& bytes) {
  const int fd = ConnectTo(port);
  ASSERT_GE(fd, 0);
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  const timeval patience = {5, 0};  // the server closes; if not, so do we
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char buffer[4096];
  while (recv(fd, buffer, sizeof buffer, 0) > 0) {
  }
  close(fd);
}

void ThrowRound(int port, std::mt19937* random, int times) {
  for (int i = 0; i < times; ++i) {
    Throw(port, RandomBytes(random, (*random)() % 20'000));
    std::string frames = kPreface + kSettings;
    for (int n = (*random)() % 20; n >= 0; --n) frames += RandomFrame(random);
    Throw(port, frames);
  }
}

TEST(HostileTest, RandomBytes_NeitherCrashNorGrow) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  TestServer server({.connections = {.entry_interval = absl::ZeroDuration()}});  // all of it is to reach gRPC
  ThrowRound(server.port(), &random, 100);                                       // until all pools have their size
  const int64_t before = UsedBytes();
  ThrowRound(server.port(), &random, 1000);
  const int64_t grown = UsedBytes() - before;
  printf("memory before %.1f MB, grown by %.1f MB\n", before / 1e6, grown / 1e6);
  EXPECT_LT(grown, 16 << 20);
  TestLauncher good(server.Grpc(), "job", "node1", PatientSettings(1));
  BeginRound({&good});
}

TEST(HostileTest, ManyIdleConnections_OthersAreServed) {
  TestServer server;
  std::vector<int> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(ConnectTo(server.port()));
    ASSERT_GE(idle.back(), 0);
    if (i % 2 == 0) (void)!send(idle.back(), kPreface, sizeof kPreface - 1, MSG_NOSIGNAL);
  }
  TestLauncher good(server.Grpc(), "job", "node1", PatientSettings(1));
  BeginRound({&good});
  for (const int fd : idle) close(fd);
}

}  // namespace
}  // namespace ddprun::rendezvous
