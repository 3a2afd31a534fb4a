#include "rendezvous/wire/message_json.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "rendezvous/core/event.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

using nlohmann::json;

TEST(MessageJsonTest, Job_NamesStatesTimesAndDurations) {
  auto job = TextProto<v1::Job>(R"(
      job_id: "j" state: STATE_LAST_CALL age { seconds: 2 nanos: 500000000 } begin { seconds: 7 }
      nodes { host: "node-a" state: STATE_RUNNING base_rank: 4 })");
  job.set_round(uint64_t{1} << 60);
  const json value = ToJson(job);
  EXPECT_EQ(value["state"], "last_call");
  EXPECT_EQ(value["round"], uint64_t{1} << 60);
  EXPECT_EQ(value["age"], 2.5);
  EXPECT_EQ(value["restart_count"], 0);
  EXPECT_EQ(value["begin"], "1970-01-01T00:00:07.000000Z");
  EXPECT_EQ(value["nodes"][0]["state"], "running");
  for (const char* unset : {"end", "verdict", "goodput", "training"}) EXPECT_FALSE(value.contains(unset)) << unset;
}

TEST(MessageJsonTest, Settings_AreAll) {
  JobSettings infinite = DefaultSettings();
  *infinite.mutable_join_timeout() = FromDuration(absl::InfiniteDuration());
  const json settings = ToJson(infinite);
  EXPECT_EQ(settings.size(), v1::JobSettings::descriptor()->field_count());
  EXPECT_EQ(JsonText(settings["join_timeout"]), "null");
  EXPECT_EQ(settings["heartbeat_timeout"], absl::ToDoubleSeconds(ToDuration(DefaultSettings().heartbeat_timeout())));
}

TEST(MessageJsonTest, ForeignValues_AreValidJson) {
  Rejected rejected;
  rejected.set_reason("bad \xff bytes");
  EXPECT_EQ(json::parse(JsonText(ToJson(rejected)))["reason"], "bad \uFFFD bytes");
  RankProgress rank;
  rank.set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(JsonText(ToJson(rank)), R"({"local_rank":0,"loss":null,"phase":"","step":0})");
}

TEST(MessageJsonTest, Event_HasTimeAndKind) {
  Event event = NewEvent(event_kind::kNodeLost, "");
  *event.mutable_time() = FromTime(absl::FromUnixMicros(1));
  const json value = ToJson(event);
  EXPECT_EQ(value["kind"], "node.lost");
  EXPECT_EQ(value["time"], "1970-01-01T00:00:00.000001Z");
  EXPECT_FALSE(value.contains("failure"));
}

}  // namespace
}  // namespace ddprun::rendezvous
