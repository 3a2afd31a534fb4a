#include "base/stream_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

const absl::Duration kLong = absl::Seconds(60);

class StreamWriterTest : public ::testing::Test {
 protected:
  StreamWriterTest() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  // The writing end stays open: a thread that is blocked in it may outlive its writer.
  ~StreamWriterTest() override { CloseReader(); }

  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }

  StreamWriter::Options Options(size_t max_bytes) {
    StreamWriter::Options options;
    options.fd = ends_[1];
    options.max_bytes = max_bytes;
    options.gap = [](int64_t lines) { return absl::StrCat("gap ", lines, "\n"); };
    return options;
  }

  std::string ReadLine() {
    std::string line;
    char byte;
    while (read(ends_[0], &byte, 1) == 1 && byte != '\n') line.push_back(byte);
    return line;
  }

  int ends_[2];
};

TEST_F(StreamWriterTest, Write_NoReader_ReturnsAndReportsGap) {
  constexpr int kLines = 1000;
  StreamWriter writer(Options(10'000));
  for (int i = 0; i < kLines; ++i) writer.Write(absl::StrCat("line ", i, " ", std::string(90, 'x'), "\n"));
  EXPECT_FALSE(writer.Flush(SteadyNow()));
  int next = 0, missing = 0;
  while (next < kLines) {
    const std::string line = ReadLine();
    int number = 0;
    if (absl::SimpleAtoi(line.substr(0, 4) == "gap " ? line.substr(4) : "", &number)) {
      missing += number;
      next += number;
      continue;
    }
    ASSERT_EQ(line, absl::StrCat("line ", next, " ", std::string(90, 'x')));
    ++next;
  }
  EXPECT_GT(missing, kLines / 2);
  EXPECT_TRUE(writer.Flush(SteadyNow() + kLong));
  writer.Write("after\n");
  EXPECT_EQ(ReadLine(), "after");
}

TEST_F(StreamWriterTest, Destructor_NoReader_Returns) {
  StreamWriter writer(Options(1 << 20));
  for (int i = 0; i < 100; ++i) writer.Write(std::string(1000, 'x') + "\n");
}

TEST_F(StreamWriterTest, Write_ReaderGone_IsReportedOnce) {
  signal(SIGPIPE, SIG_DFL);  // the writer's thread must not die of it
  CloseReader();
  std::atomic<int> told{0};
  StreamWriter::Options options = Options(1 << 20);
  options.on_broken = [&](int error) {
    EXPECT_EQ(error, EPIPE);
    ++told;
  };
  StreamWriter writer(std::move(options));
  writer.Write("one\n");
  EXPECT_TRUE(writer.Flush(SteadyNow() + kLong));
  writer.Write("two\n");
  EXPECT_TRUE(writer.Flush(SteadyNow() + kLong));
  EXPECT_EQ(told, 1);
}

TEST_F(StreamWriterTest, DescriptorDoesNotBlock_NothingIsLost) {
  fcntl(ends_[1], F_SETFL, O_NONBLOCK);
  StreamWriter writer(Options(1 << 20));
  for (int i = 0; i < 1000; ++i) writer.Write(absl::StrCat("line ", i, "\n"));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ReadLine(), absl::StrCat("line ", i));
}

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
