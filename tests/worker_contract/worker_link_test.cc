#include "worker_contract/worker_link.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace ddprun::worker_contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The line without its end.
template <typename Line>
std::string Encode(const Line& line) {
  std::string text = EncodeLine(line);
  EXPECT_EQ(text.back(), '\n');
  text.pop_back();
  return text;
}

WorkerLine Decoded(absl::string_view line) {
  const auto decoded = DecodeWorkerLine(line);
  EXPECT_TRUE(decoded.ok() && decoded->has_value()) << line << ": " << decoded.status();
  return decoded.ok() && decoded->has_value() ? **decoded : WorkerLine();
}

std::string ErrorOf(absl::string_view line) { return std::string(DecodeWorkerLine(line).status().message()); }

TEST(WorkerLink, Section3_TheLinesOfTheProtocol) {
  EXPECT_EQ(Encode(WorkerLine(LinkHello{1, 2, 10, 4711, {"progress"}})),
            R"({"capabilities":["progress"],"local_rank":2,"pid":4711,"rank":10,"type":"hello","version":1})");
  EXPECT_EQ(Encode(WorkerLine(LinkProgress{120, 7680, "backward", 2.5})),
            R"({"loss":2.5,"phase":"backward","samples":7680,"step":120,"type":"progress"})");
  EXPECT_EQ(Encode(WorkerLine(LinkProgress{.step = 3})), R"({"step":3,"type":"progress"})");
  EXPECT_EQ(Encode(LauncherLine(LinkStop{absl::Milliseconds(1500), "received SIGTERM"})),
            R"({"deadline":1.5,"reason":"received SIGTERM","type":"stop"})");
}

TEST(WorkerLink, WhatWasWrittenIsRead) {
  for (const WorkerLine& line : {WorkerLine(LinkHello{1, 2, 10, 4711, {"progress", "stop"}}), WorkerLine(LinkHello{}),
                                 WorkerLine(LinkProgress{.step = std::numeric_limits<int64_t>::max()}),
                                 WorkerLine(LinkProgress{0, 0, "a \"phase\"\n\xC3\xA4", -1e300}),
                                 WorkerLine(LinkProgress{1, {}, "", std::numeric_limits<double>::infinity()}),
                                 WorkerLine(LinkProgress{1, {}, "", -std::numeric_limits<double>::infinity()})}) {
    EXPECT_EQ(Decoded(Encode(line)), line);
  }
  const WorkerLine nan = Decoded(Encode(WorkerLine(LinkProgress{1, {}, "", std::nan("")})));
  EXPECT_TRUE(std::isnan(*std::get<LinkProgress>(nan).loss));

  const LauncherLine stop = LinkStop{absl::Milliseconds(29500), "lost node7"};
  const auto decoded = DecodeLauncherLine(Encode(stop));
  ASSERT_TRUE(decoded.ok() && decoded->has_value()) << decoded.status();
  EXPECT_EQ(**decoded, stop);
}

TEST(WorkerLink, Section1_UnknownTypesAndFieldsAreIgnored) {
  EXPECT_EQ(Decoded(R"({"type":"progress","step":7,"new":{"a":[1]},"phase":null})"), WorkerLine(LinkProgress{7}));
  const auto worker = DecodeWorkerLine(R"({"type":"suspended","committed":12})");
  EXPECT_TRUE(worker.ok() && !worker->has_value());
  const auto launcher = DecodeLauncherLine(R"({"type":"suspend"})");
  EXPECT_TRUE(launcher.ok() && !launcher->has_value());
}

TEST(WorkerLink, BadLinesAreErrorsThatSayWhatIsWrong) {
  EXPECT_EQ(ErrorOf("hello"), "a line is not a JSON object");
  EXPECT_EQ(ErrorOf("[1]"), "a line is not a JSON object");
  EXPECT_EQ(ErrorOf("{\"type\":\"progress\",\"step\":1,\"phase\":\"\xff\"}"), "a line is not a JSON object");
  EXPECT_THAT(ErrorOf(R"({"step":1})"), HasSubstr("has no \"type\""));
  EXPECT_THAT(ErrorOf(R"({"type":5})"), HasSubstr("has no \"type\""));
  EXPECT_EQ(ErrorOf(R"({"type":"progress"})"), "progress: step is missing");
  const std::string step = "progress: step must be an integer from 0 to 9223372036854775807";
  for (const char* bad : {"-1", "1.5", "\"1\"", "9223372036854775808", "1e3", "true", "{}"}) {
    EXPECT_EQ(ErrorOf(absl::StrCat(R"({"type":"progress","step":)", bad, "}")), step) << bad;
  }
  EXPECT_EQ(ErrorOf(R"({"type":"progress","step":1,"phase":2})"), "progress: phase must be a string");
  EXPECT_THAT(ErrorOf(R"({"type":"progress","step":1,"loss":"high"})"), HasSubstr("loss must be a number"));
  EXPECT_THAT(ErrorOf(R"({"type":"hello","version":1,"local_rank":0,"rank":0,"pid":3,"capabilities":"all"})"),
              HasSubstr("capabilities must be an array of strings"));
  for (const char* bad : {"-1", "1e10", "\"nan\"", "null", "\"soon\""}) {
    const auto stop = DecodeLauncherLine(absl::StrCat(R"({"type":"stop","deadline":)", bad, "}"));
    EXPECT_FALSE(stop.ok()) << bad;
  }
}

TEST(WorkerLink, Section1_NoLineIsLongerThanTheLimit) {
  LinkHello hello;
  hello.capabilities.assign(100, std::string(1000, '\x01'));
  EXPECT_LE(EncodeLine(WorkerLine(hello)).size(), kMaxLinkLine);
  EXPECT_LE(EncodeLine(WorkerLine(LinkProgress{1, 1, std::string(10000, '\x02'), 1.0})).size(), kMaxLinkLine);
  EXPECT_LE(EncodeLine(LauncherLine(LinkStop{absl::Seconds(1), std::string(10000, '\xff')})).size(), kMaxLinkLine);
  // Cut between characters.
  const WorkerLine cut = Decoded(Encode(WorkerLine(LinkProgress{1, {}, std::string(63, 'x') + "\xC3\xA4", {}})));
  EXPECT_EQ(std::get<LinkProgress>(cut).phase, std::string(63, 'x'));
}

TEST(LineReader, LinesArriveInAnyPieces) {
  LineReader reader;
  std::vector<std::string> lines;
  EXPECT_TRUE(reader.Read("one\ntw", &lines).ok());
  EXPECT_THAT(lines, ElementsAre("one"));
  EXPECT_TRUE(reader.Read("o", &lines).ok());
  EXPECT_TRUE(reader.Read("\n\nthree", &lines).ok());
  EXPECT_THAT(lines, ElementsAre("one", "two", ""));
}

TEST(LineReader, ALineOfTheLimit_AndOneByteMore) {
  LineReader reader;
  std::vector<std::string> lines;
  EXPECT_TRUE(reader.Read(std::string(kMaxLinkLine - 1, 'x') + "\n", &lines).ok());
  EXPECT_EQ(lines.size(), 1);
  EXPECT_TRUE(reader.Read(std::string(kMaxLinkLine - 1, 'x'), &lines).ok());
  EXPECT_THAT(std::string(reader.Read("x", &lines).message()), HasSubstr("longer than 4096 bytes"));

  LineReader at_once;
  lines.clear();
  EXPECT_FALSE(at_once.Read("ok\n" + std::string(kMaxLinkLine, 'x') + "\n", &lines).ok());
  EXPECT_THAT(lines, ElementsAre("ok"));
}

}  // namespace
}  // namespace ddprun::worker_contract
