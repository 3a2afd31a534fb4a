#include "base/write_all.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

namespace ddprun {
namespace {

TEST(WriteAll, NonBlockingPipe_WaitsForItsReader) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string sent(1 << 20, 'x');
  std::string received;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) received.append(buffer, n);
  });
  EXPECT_EQ(WriteAll(ends[1], sent), 0);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(received, sent);
}

TEST(WriteAll, Error_IsReturned) {
  const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(WriteAll(fd, ""), 0);
  EXPECT_EQ(WriteAll(fd, "x"), ENOSPC);
  close(fd);
}

}  // namespace
}  // namespace ddprun
