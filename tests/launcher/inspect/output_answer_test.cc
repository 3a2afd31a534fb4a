#include "launcher/inspect/output_answer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using rendezvous::RankOutput;

constexpr size_t kMany = 1 << 20;

// A stream through the launcher.
class Piped {
 public:
  Piped() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC | O_NONBLOCK), 0);
    tail_ = std::make_shared<PipeTail>(ends_[0]);
  }
  ~Piped() {
    tail_->End();
    close(ends_[0]);
    close(ends_[1]);
  }
  void Print(const std::string& text) {
    char buffer[4096];
    for (size_t at = 0; at < text.size(); at += sizeof buffer) {
      const std::string part = text.substr(at, sizeof buffer);
      ASSERT_EQ(write(ends_[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
      ASSERT_EQ(tail_->Read(buffer, sizeof buffer), static_cast<ssize_t>(part.size()));
    }
  }
  OutputSource Source() const { return {"", 0, tail_}; }

 private:
  int ends_[2] = {};
  std::shared_ptr<PipeTail> tail_;
};

// Texts of an answer, with "!" at gaps and "|" between messages.
std::string Text(const std::vector<RankOutput>& answer) {
  std::string text;
  for (const RankOutput& output : answer) absl::StrAppend(&text, output.gap() ? "!" : "", output.text(), "|");
  return text;
}

class OutputAnswerTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  // Asks for what follows the last answer.
  std::string Next(size_t max = kMany) {
    const std::vector<RankOutput> answer = AnswerOutput({stream_}, since_, max);
    if (!answer.empty()) stream_.after = answer.back().end();
    return Text(answer);
  }
  // The stream continues in this source, after a restart.
  void Restart(uint32_t process, OutputSource source) {
    stream_.previous = stream_.current;
    stream_.current = {process, std::move(source)};
  }

  const testing::TempDir dir_;
  const std::string path_ = dir_.File("stdout.log");
  AskedStream stream_;
  std::optional<absl::Duration> since_;
};

TEST_F(OutputAnswerTest, File_Followed_EveryByteOnce) {
  Write("of an earlier round\n");
  stream_.current = {7, {path_, 20}};
  EXPECT_EQ(Next(), "|");
  EXPECT_EQ(Next(), "");
  Write("one\ntw");
  EXPECT_EQ(Next(), "one\ntw|");
  Write("o\n");
  EXPECT_EQ(Next(1), "o|");
  EXPECT_EQ(Next(), "\n|");
  EXPECT_EQ(Next(), "");
}

TEST_F(OutputAnswerTest, File_LongOutput_EndInSeveralMessages) {
  Write(std::string(500'000, 'x') + "end");
  stream_.current = {7, {path_, 0}};
  const std::vector<RankOutput> answer = AnswerOutput({stream_}, since_, kMany);
  size_t bytes = 0;
  for (const RankOutput& output : answer) {
    EXPECT_LE(output.text().size(), rendezvous::kMaxOutputBytes);
    EXPECT_EQ(output.gap(), bytes == 0);
    bytes += output.text().size();
  }
  EXPECT_EQ(bytes, 256u << 10);
  EXPECT_TRUE(answer.back().text().ends_with("end"));
}

TEST_F(OutputAnswerTest, File_TruncatedOrDeleted_BeginsAnewOrIsUnseen) {
  Write("0123456789\n");
  stream_.current = {7, {path_, 0}};
  EXPECT_EQ(Next(), "0123456789\n|");
  std::ofstream(path_, std::ios::trunc) << "new\n";
  EXPECT_EQ(Next(), "!new\n|");
  std::filesystem::remove(path_);
  EXPECT_EQ(Next(), "|");
  EXPECT_EQ(stream_.after, 0u) << "the launcher does not see it";
  EXPECT_EQ(Next(), "") << "told once";
}

TEST_F(OutputAnswerTest, Since_FileWrittenBefore_HasNothing) {
  Write("old\n");
  std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  stream_.current = {7, {path_, 0}};
  since_ = absl::Minutes(5);
  EXPECT_EQ(Next(), "|");
  Write("new\n");
  EXPECT_EQ(Next(), "new\n|");
}

TEST_F(OutputAnswerTest, Pipe_MoreThanIsKept_GapAndTheLastBytes) {
  Piped pipe;
  stream_.current = {7, pipe.Source()};
  pipe.Print("first\n");
  EXPECT_EQ(Next(), "first\n|");
  pipe.Print(std::string(3 * PipeTail::kKeptBytes, 'x') + "last\n");
  const std::vector<RankOutput> answer = AnswerOutput({stream_}, since_, kMany);
  ASSERT_GE(answer.size(), 2u);
  EXPECT_TRUE(answer.front().gap());
  EXPECT_TRUE(answer.back().text().ends_with("last\n"));
  EXPECT_EQ(Next().substr(0, 2), "!x");
  EXPECT_EQ(Next(), "");
}

TEST_F(OutputAnswerTest, Since_Pipe_OutputOfThatTime) {
  Piped pipe;
  pipe.Print("line\n");
  stream_.current = {7, pipe.Source()};
  since_ = absl::Minutes(5);
  EXPECT_EQ(Next(), "line\n|");
}

// Without a line end in between, the first line of the new process would continue the last one of the previous.
TEST_F(OutputAnswerTest, Restart_RestOfThePreviousProcessComesFirst) {
  Piped first, second;
  stream_.current = {7, first.Source()};
  first.Print("a\nb");
  EXPECT_EQ(Next(), "a\nb|");
  first.Print("c");
  second.Print("d\n");
  Restart(8, second.Source());
  EXPECT_EQ(Next(), "c\n|d\n|");
  Write("e\n");
  Restart(9, {path_, 0});
  EXPECT_EQ(Next(), "e\n|") << "nothing is left, and its last line was complete";
  stream_.after = uint64_t{1234} << 40 | 1;
  EXPECT_EQ(Next(), "e\n|") << "a position of another launcher";
}

TEST_F(OutputAnswerTest, Unseen_JoinedAndNotStarted_AreToldApart) {
  EXPECT_EQ(Next(), "") << "not started";
  stream_.current = {7, {}};
  EXPECT_EQ(Next(), "|");
  EXPECT_EQ(stream_.after, 0u);
  stream_.after.reset();
  stream_.current.source.joined = true;
  EXPECT_EQ(Next(), "") << "it is part of stderr";
}

TEST_F(OutputAnswerTest, SeveralStreams_ShareTheBytes) {
  Write(std::string(1000, 'x'));
  stream_.current = {7, {path_, 0}};
  AskedStream silent;
  silent.is_stderr = true;
  const std::vector<RankOutput> answer = AnswerOutput({silent, stream_, stream_}, since_, 300);
  ASSERT_EQ(answer.size(), 2u);
  for (const RankOutput& output : answer) EXPECT_EQ(output.text().size(), 150u);
}

}  // namespace
}  // namespace ddprun::launcher
