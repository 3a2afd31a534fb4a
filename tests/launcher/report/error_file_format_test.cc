#include "launcher/report/error_file_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/messages.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

constexpr char kRecorded[] =
    R"({"message":{"message":"ValueError: bad input","extraInfo":{"py_callstack":"Traceback (most recent call last):)"
    R"(\n  File \"x.py\", line 1\nValueError: bad input\n","timestamp":"1700000000"}}})";

TEST(ParseErrorFile, Record_IsRead) {
  const WorkerError error = ParseErrorFile(kRecorded);
  EXPECT_EQ(error.message, "ValueError: bad input");
  EXPECT_EQ(error.traceback, "Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: bad input");
  EXPECT_EQ(error.raised_at, absl::FromUnixSeconds(1700000000));
}

TEST(ParseErrorFile, PlainMessage_IsRead) {
  const auto parse = [](const std::string& timestamp) {
    const WorkerError error = ParseErrorFile(absl::StrCat(R"({"message":"boom","timestamp":)", timestamp, "}"));
    EXPECT_EQ(error.message, "boom") << timestamp;
    EXPECT_EQ(error.traceback, "");
    return error.raised_at;
  };
  for (const char* timestamp : {"1700000000", "\"1700000000\"", "1700000000.75"}) {
    EXPECT_EQ(parse(timestamp), absl::FromUnixSeconds(1700000000));
  }
  for (const char* odd : {"0", "-5", "1e300", "\"soon\"", "\"\"", "null", "[1]", "\"nan\"", "\"inf\"", "true"}) {
    EXPECT_EQ(parse(odd), std::nullopt) << odd;
  }
  EXPECT_EQ(ParseErrorFile(R"({"message":"boom"})").raised_at, std::nullopt);
}

TEST(ParseErrorFile, MessageThatQuotesATraceback_LosesItsFrames) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"(ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):)"
       R"(\n  File \"x.py\", line 7, in get\n    raise ValueError(i)\n          ^^^\nValueError: sample 5\n)",
       "ValueError: Caught ValueError in DataLoader worker process 0. ValueError: sample 5"},
      {R"(\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n  File\nE: a\n b)",
       "-- Process 1 terminated with the following error: E: a b"},
      {R"(Traceback (most recent call last):)", "Traceback (most recent call last):"},
      {R"(a\n  b)", "a  b"},
  };
  for (const auto& [text, message] : kCases) {
    EXPECT_EQ(ParseErrorFile(absl::StrCat(R"({"message":")", text, "\"}")).message, message);
  }
}

TEST(ParseErrorFile, OddShapes_GiveAMessage) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"message":{"message":"boom"}})", "boom"},
      {R"({"message":{"message":{"a":1}}})", R"({"a":1})"},
      {R"({"message":{"other":1}})", R"({"other":1})"},
      {R"({"message":{"message":"boom","extraInfo":"x"}})", "boom"},
      {R"({"message":[1,2]})", "[1,2]"},
      {R"({"error":"boom"})", R"({"error":"boom"})"},
      {"17", "17"},
      {R"({"message":"\u001b[31mred\u0000\nnext"})", "?[31mred? next"}};
  for (const auto& [content, message] : kCases) EXPECT_EQ(ParseErrorFile(content).message, message);
}

TEST(ParseErrorFile, RawText_GivesItsLastLine) {
  const WorkerError error = ParseErrorFile("Traceback:\n  somewhere\nKeyError: 'x'\n\n");
  EXPECT_EQ(error.message, "KeyError: 'x'");
  EXPECT_EQ(error.traceback, "Traceback:\n  somewhere\nKeyError: 'x'");
  EXPECT_EQ(ParseErrorFile(""), WorkerError());
  EXPECT_EQ(ParseErrorFile(" \n"), WorkerError());
}

TEST(ParseErrorFile, CutOffAnywhere_IsReadAsText) {
  const std::string whole = kRecorded;
  for (size_t length = 1; length < whole.size(); ++length) {
    const WorkerError error = ParseErrorFile(whole.substr(0, length));
    EXPECT_FALSE(error.message.empty());
    EXPECT_EQ(error.raised_at, std::nullopt);
  }
}

TEST(ParseErrorFile, HugeContent_IsBounded) {
  const std::string many(100'000, 'm');
  nlohmann::json json;
  json["message"]["message"] = many;
  json["message"]["extraInfo"]["py_callstack"] = "FIRST\n" + many + "\nLAST";
  for (const std::string& content :
       {json.dump(), std::string(3 << 20, 'x'), std::string(2 << 20, '['), std::string(500'000, '['),
        R"({"message":)" + std::string(400'000, '[') + std::string(400'000, ']') + "}"}) {
    const WorkerError error = ParseErrorFile(content);
    EXPECT_LE(error.message.size(), kMaxErrorMessageBytes);
    EXPECT_FALSE(error.message.empty());
    EXPECT_LE(error.traceback.size(), rendezvous::kMaxTracebackBytes);
  }
  const WorkerError error = ParseErrorFile(json.dump());
  EXPECT_TRUE(absl::StartsWith(error.traceback, "FIRST"));
  EXPECT_TRUE(absl::EndsWith(error.traceback, "LAST"));
}

TEST(ParseErrorFile, BracketsInStrings_DoNotNest) {
  const std::string brackets(100, '[');
  EXPECT_EQ(ParseErrorFile(absl::StrCat(R"({"message":"\"\\)", brackets, "\"}")).message, "\"\\" + brackets);
}

// Randomly changed bytes: the result is bounded, printable UTF-8, and nothing throws.
TEST(ParseErrorFile, RandomBytes_NeverThrow) {
  std::mt19937 random(20240611);
  for (int i = 0; i < 20'000; ++i) {
    std::string content = i % 2 == 0 ? kRecorded : std::string(random() % 64, '\0');
    if (i % 2 == 1) {
      for (char& c : content) c = static_cast<char>(random());
    }
    for (int change = random() % 4; change > 0 && !content.empty(); --change) {
      content[random() % content.size()] = static_cast<char>(random());
    }
    const WorkerError error = ParseErrorFile(content);
    ASSERT_EQ(OneLine(error.message, kMaxErrorMessageBytes), error.message) << "seed 20240611, case " << i;
    ASSERT_EQ(CleanText(error.traceback), error.traceback) << "seed 20240611, case " << i;
  }
}

TEST(FormatErrorFile, Parsed_GivesTheSameError) {
  rendezvous::WorkerFailure failure =
      TextProto("host: 'node-a' rank: 3 pid: 7 signal: 9 at { seconds: 1700000000 }", rendezvous::NewFailure());
  failure.set_message("ValueError: \"x\"\xff");
  failure.set_traceback("Traceback\n  line");
  const std::string content = FormatErrorFile(failure);
  EXPECT_TRUE(absl::StrContains(content, "\"errorCode\":-9")) << content;
  EXPECT_TRUE(absl::StrContains(content, "\"pid\":\"7\"")) << content;
  EXPECT_TRUE(absl::StrContains(content, "\"rank\":\"3\"")) << content;
  const WorkerError error = ParseErrorFile(content);
  EXPECT_EQ(error.traceback, failure.traceback());
  EXPECT_EQ(error.raised_at, ToTime(failure.at()));
  EXPECT_TRUE(absl::StrContains(error.message, "ValueError: \"x\"")) << error.message;
  failure.set_message("");
  EXPECT_EQ(ParseErrorFile(FormatErrorFile(failure)).message, "rank 3 on node-a (pid 7) was killed by SIGKILL");
}

}  // namespace
}  // namespace ddprun::launcher
