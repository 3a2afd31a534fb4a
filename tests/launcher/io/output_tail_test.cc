#include "launcher/io/output_tail.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

void Write(const UniqueFd& fd, const std::string& text) {
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(PipeTailTest, ReadOrNot_TheEndIsKnown) {
  Pipe pipe;
  fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  PipeTail tail(pipe.read.get());
  EXPECT_EQ(tail.Text(), "");
  char buffer[4] = {};
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), -1);
  Write(pipe.write, "abcdef");
  EXPECT_EQ(tail.Text(), "abcdef");
  EXPECT_EQ(tail.Text(), "abcdef") << "it was not consumed";
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), 4);
  EXPECT_EQ(std::string(buffer, 4), "abcd");
  EXPECT_EQ(tail.Text(), "abcdef");
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), 2);
  pipe.write.reset();
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), 0);
  tail.End();
  pipe.read.reset();
  EXPECT_EQ(tail.Text(), "abcdef");
}

TEST(PipeTailTest, MuchOutput_OnlyTheEndIsKept) {
  Pipe pipe;
  PipeTail tail(pipe.read.get());
  std::vector<char> buffer(3000);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const std::string text(2999, static_cast<char>('a' + i));
    all += text;
    Write(pipe.write, text);
    if (i < 15) {
      ASSERT_EQ(tail.Read(buffer.data(), buffer.size()), 2999);
    }
    EXPECT_EQ(tail.Text(), all.substr(all.size() - std::min(all.size(), kOutputTailBytes)));
  }
  buffer.resize(60000);
  EXPECT_EQ(tail.Read(buffer.data(), buffer.size()), 5 * 2999);
  EXPECT_EQ(tail.Text(), all.substr(all.size() - kOutputTailBytes));
}

TEST(ReadFileTail, FromAnOffset_OnlyNewerTextIsReturned) {
  const testing::TempDir dir;
  const std::string path = dir.File("log");
  EXPECT_EQ(ReadFileTail(path, 0), "");
  std::ofstream(path) << "earlier\nnow\n";
  EXPECT_EQ(ReadFileTail(path, 0), "earlier\nnow\n");
  EXPECT_EQ(ReadFileTail(path, 8), "now\n");
  EXPECT_EQ(ReadFileTail(path, 12), "");
  EXPECT_EQ(ReadFileTail(path, 100), "");
  std::ofstream(path) << std::string(100'000, 'x') << "end";
  EXPECT_EQ(ReadFileTail(path, 8), std::string(kOutputTailBytes - 3, 'x') + "end");
}

}  // namespace
}  // namespace ddprun::launcher
