#include "worker_contract/worker_link.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"

namespace ddprun::worker_contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the line without its end.
template <typename Line>
std::string Encode(const Line& line) {
  std::string text = EncodeMessage(line);
  EXPECT_EQ(text.back(), '\n');
  text.pop_back();
  return text;
}

WorkerLinkMessage Decoded(absl::string_view line) {
  const auto decoded = DecodeWorkerMessage(line);
  EXPECT_TRUE(decoded.ok() && decoded->has_value()) << line << ": " << decoded.status();
  return decoded.ok() && decoded->has_value() ? **decoded : WorkerLinkMessage();
}

std::string ErrorOf(absl::string_view line) { return std::string(DecodeWorkerMessage(line).status().message()); }

const LinkReForm kReForm{{6, 1, 4, 2, 0, 2, "10.0.0.5", 40123, 1}, 1, 4, 0, 120};

TEST(WorkerLink, Section3_Encode_AnyMessage_IsTheProtocolsLine) {
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkHello{1, 2, 10, 4711, {"progress"}})),
            R"({"capabilities":["progress"],"local_rank":2,"pid":4711,"rank":10,"type":"hello","version":1})");
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkProgress{120, 7680, "backward", 2.5})),
            R"({"loss":2.5,"phase":"backward","samples":7680,"step":120,"type":"progress"})");
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkProgress{.step = 3})), R"({"step":3,"type":"progress"})");
  EXPECT_EQ(Encode(LauncherLinkMessage(LinkStop{absl::Milliseconds(1500), "received SIGTERM"})),
            R"({"deadline":1.5,"reason":"received SIGTERM","type":"stop"})");
}

TEST(WorkerLink, Section5_Encode_MessagesOfRounds_AreTheProtocolsLines) {
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkSuspended{5, 120})), R"({"round":5,"step":120,"type":"suspended"})");
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkSuspended{5, {}})), R"({"round":5,"type":"suspended"})");
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkReFormed{6, 120, 0})),
            R"({"round":6,"source":0,"step":120,"type":"re-formed"})");
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkCheckpointed{120})), R"({"step":120,"type":"checkpointed"})");
  EXPECT_EQ(Encode(WorkerLinkMessage(LinkFailed{5, "no peer"})), R"({"message":"no peer","round":5,"type":"failed"})");
  EXPECT_EQ(Encode(LauncherLinkMessage(LinkCheckpointNow{absl::Seconds(25)})),
            R"({"deadline":25.0,"type":"checkpoint-now"})");
  EXPECT_EQ(Encode(LauncherLinkMessage(LinkSuspend{5, true, "rank 3 failed", 3})),
            R"({"at_step_end":true,"blame":3,"reason":"rank 3 failed","round":5,"type":"suspend"})");
  EXPECT_EQ(Encode(LauncherLinkMessage(kReForm)),
            R"({"group_rank":0,"group_world_size":2,"local_world_size":2,"master_addr":"10.0.0.5",)"
            R"("master_port":40123,"rank":1,"restart_count":1,"role_rank":1,"role_world_size":4,"round":6,)"
            R"("state_source":0,"state_step":120,"type":"re-form","world_size":4})");
}

TEST(WorkerLink, Decode_OwnLine_RoundTrips) {
  for (const WorkerLinkMessage& line :
       {WorkerLinkMessage(LinkHello{1, 2, 10, 4711, {"progress", "stop"}}), WorkerLinkMessage(LinkHello{}),
        WorkerLinkMessage(LinkProgress{.step = std::numeric_limits<int64_t>::max()}),
        WorkerLinkMessage(LinkProgress{0, 0, "a \"phase\"\n\xC3\xA4", -1e300}),
        WorkerLinkMessage(LinkProgress{1, {}, "", std::numeric_limits<double>::infinity()}),
        WorkerLinkMessage(LinkProgress{1, {}, "", -std::numeric_limits<double>::infinity()}),
        WorkerLinkMessage(LinkSuspended{5, 120}), WorkerLinkMessage(LinkSuspended{5, {}}),
        WorkerLinkMessage(LinkReFormed{6, 120, 3}), WorkerLinkMessage(LinkReFormed{6, 0, {}}),
        WorkerLinkMessage(LinkCheckpointed{7}), WorkerLinkMessage(LinkFailed{5, "lost rank 3"}),
        WorkerLinkMessage(LinkProbe{3, 4711})}) {
    EXPECT_EQ(Decoded(Encode(line)), line);
  }
  const WorkerLinkMessage nan = Decoded(Encode(WorkerLinkMessage(LinkProgress{1, {}, "", std::nan("")})));
  EXPECT_TRUE(std::isnan(*std::get<LinkProgress>(nan).loss));

  LinkReForm nobody_holds_a_state = kReForm;
  nobody_holds_a_state.state_source.reset();
  nobody_holds_a_state.state_step.reset();
  for (const LauncherLinkMessage& line :
       {LauncherLinkMessage(LinkStop{absl::Milliseconds(29500), "lost node7"}),
        LauncherLinkMessage(LinkCheckpointNow{absl::Seconds(25)}),
        LauncherLinkMessage(LinkSuspend{5, true, "lost node7", {}}), LauncherLinkMessage(LinkSuspend{5, false, "", 0}),
        LauncherLinkMessage(kReForm), LauncherLinkMessage(nobody_holds_a_state)}) {
    const auto decoded = DecodeLauncherMessage(Encode(line));
    ASSERT_TRUE(decoded.ok() && decoded->has_value()) << decoded.status();
    EXPECT_EQ(**decoded, line);
  }
}

TEST(WorkerLink, Section1_Decode_UnknownTypesAndFields_AreIgnored) {
  EXPECT_EQ(Decoded(R"({"type":"progress","step":7,"new":{"a":[1]},"phase":null})"),
            WorkerLinkMessage(LinkProgress{7}));
  const auto worker = DecodeWorkerMessage(R"({"type":"resting","step":12})");
  EXPECT_TRUE(worker.ok() && !worker->has_value());
  const auto launcher = DecodeLauncherMessage(R"({"type":"rest"})");
  EXPECT_TRUE(launcher.ok() && !launcher->has_value());
}

TEST(WorkerLink, Decode_BadLine_ErrorHasTheReason) {
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
    const auto stop = DecodeLauncherMessage(absl::StrCat(R"({"type":"stop","deadline":)", bad, "}"));
    EXPECT_FALSE(stop.ok()) << bad;
    EXPECT_FALSE(DecodeLauncherMessage(absl::StrCat(R"({"type":"checkpoint-now","deadline":)", bad, "}")).ok()) << bad;
  }
  for (const char* type : {"suspended", "failed", "re-formed"}) {
    EXPECT_EQ(ErrorOf(absl::StrCat(R"({"type":")", type, R"("})")), absl::StrCat(type, ": round is missing"));
  }
  EXPECT_THAT(ErrorOf(R"({"type":"suspended","round":5,"step":-1})"), HasSubstr("step must be an integer from 0"));
  EXPECT_EQ(ErrorOf(R"({"type":"re-formed","round":5})"), "re-formed: step is missing");
  EXPECT_EQ(ErrorOf(R"({"type":"checkpointed"})"), "checkpointed: step is missing");
  EXPECT_EQ(DecodeLauncherMessage(R"({"type":"suspend","round":5,"at_step_end":1})").status().message(),
            "suspend: at_step_end must be true or false");
}

TEST(WorkerLink, Section5_3_Decode_ReFormWithoutAField_ReturnsError) {
  const auto error_of = [](absl::string_view field, absl::string_view becomes) {
    const std::string line = absl::StrReplaceAll(Encode(LauncherLinkMessage(kReForm)), {{field, becomes}});
    return std::string(DecodeLauncherMessage(line).status().message());
  };
  EXPECT_EQ(error_of(R"("rank":1,)", ""), "re-form: rank is missing");
  EXPECT_EQ(error_of("40123", "65536"), "re-form: master_port must be an integer from 0 to 65535");
  for (const std::string& bad : {std::string(), std::string(256, 'x')}) {
    EXPECT_EQ(error_of("10.0.0.5", bad), "re-form: master_addr must have 1 to 255 bytes");
  }
  EXPECT_EQ(error_of("10.0.0.5", std::string(255, 'x')), "");
}

TEST(WorkerLink, Section1_Encode_AnyMessage_StaysWithinTheLimit) {
  LinkHello hello;
  hello.capabilities.assign(100, std::string(1000, '\x01'));
  EXPECT_LE(EncodeMessage(WorkerLinkMessage(hello)).size(), kMaxLinkLine);
  EXPECT_LE(EncodeMessage(WorkerLinkMessage(LinkProgress{1, 1, std::string(10000, '\x02'), 1.0})).size(), kMaxLinkLine);
  EXPECT_LE(EncodeMessage(LauncherLinkMessage(LinkStop{absl::Seconds(1), std::string(10000, '\xff')})).size(),
            kMaxLinkLine);
  EXPECT_LE(EncodeMessage(WorkerLinkMessage(LinkFailed{1, std::string(10000, '\x02')})).size(), kMaxLinkLine);
  EXPECT_LE(EncodeMessage(LauncherLinkMessage(LinkSuspend{1, true, std::string(10000, '\xff'), 1})).size(),
            kMaxLinkLine);
  // Cut between characters.
  const WorkerLinkMessage cut =
      Decoded(Encode(WorkerLinkMessage(LinkProgress{1, {}, std::string(63, 'x') + "\xC3\xA4", {}})));
  EXPECT_EQ(std::get<LinkProgress>(cut).phase, std::string(63, 'x'));
}

TEST(LineReader, Read_AnyPieces_ReturnsWholeLines) {
  LineReader reader;
  std::vector<std::string> lines;
  EXPECT_TRUE(reader.Read("one\ntw", &lines).ok());
  EXPECT_THAT(lines, ElementsAre("one"));
  EXPECT_TRUE(reader.Read("o", &lines).ok());
  EXPECT_TRUE(reader.Read("\n\nthree", &lines).ok());
  EXPECT_THAT(lines, ElementsAre("one", "two", ""));
}

TEST(LineReader, Read_LineOfTheLimitAndLonger_OnlyLongerIsAnError) {
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
