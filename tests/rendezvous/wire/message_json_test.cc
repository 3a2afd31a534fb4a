#include "rendezvous/wire/message_json.h"

#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "rendezvous/core/event.h"
#include "rendezvous/wire/job_wire.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

using nlohmann::json;

JobView SampleJob() {
  JobView job;
  job.job_id = "j";
  job.state = JobState::kLastCall;
  job.round = uint64_t{1} << 60;
  job.age = absl::Milliseconds(2500);
  job.began = SteadyTime::FromStart(absl::Seconds(7));
  *job.settings.mutable_join_timeout() = FromDuration(absl::InfiniteDuration());
  job.nodes.push_back(TextProto<v1::Node>(R"(node_id: "secret-id" host: "node-a" state: STATE_RUNNING base_rank: 4)"));
  return job;
}

json JobJson(const JobView& job) { return ToJson(ToProto(job, absl::UnixEpoch())); }

TEST(MessageJsonTest, Job_NamesStatesTimesAndDurations) {
  JobView job = SampleJob();
  const json value = JobJson(job);
  EXPECT_EQ(value["state"], "last_call");
  EXPECT_EQ(value["round"], uint64_t{1} << 60);
  EXPECT_EQ(value["age"], 2.5);
  EXPECT_EQ(value["restart_count"], 0);
  EXPECT_EQ(value["begin"], "1970-01-01T00:00:07.000000Z");
  EXPECT_EQ(value["nodes"][0]["state"], "running");
  EXPECT_EQ(value["nodes"][0]["node_id"].get<std::string>().size(), 12);
  EXPECT_FALSE(absl::StrContains(JsonText(value), "secret-id"));
  for (const char* unset : {"end", "verdict", "goodput", "training"}) EXPECT_FALSE(value.contains(unset)) << unset;
  job.ended = SteadyTime::FromStart(absl::Seconds(97));
  EXPECT_EQ(JobJson(job)["end"], "1970-01-01T00:01:37.000000Z");
}

TEST(MessageJsonTest, Settings_AreAll) {
  const json settings = JobJson(SampleJob())["settings"];
  EXPECT_EQ(settings.size(), v1::JobSettings::descriptor()->field_count());
  EXPECT_EQ(JsonText(settings["join_timeout"]), "null");
  EXPECT_EQ(settings["heartbeat_timeout"], absl::ToDoubleSeconds(ToDuration(DefaultSettings().heartbeat_timeout())));
}

TEST(MessageJsonTest, Training_AgoOnlyOfALivingJob) {
  JobView job = SampleJob();
  job.training = TrainingView{.step = 7, .behind = 1, .loss = 0.5, .ago = absl::Seconds(2), .losses = {{6, 0.75}}};
  EXPECT_EQ(
      JobJson(job)["training"],
      json::parse(R"({"step": 7, "steps_behind": 1, "loss": 0.5, "ago": 2.0, "losses": [{"step": 6, "loss": 0.75}]})"));
  job.state = JobState::kFinished;
  EXPECT_FALSE(JobJson(job)["training"].contains("ago"));
}

TEST(MessageJsonTest, Goodput_IsSeconds) {
  JobView job = SampleJob();
  job.goodput =
      GoodputView{.waiting = absl::Seconds(1), .training = absl::Milliseconds(2500), .lost = absl::Seconds(5)};
  EXPECT_EQ(JobJson(job)["goodput"],
            json::parse(R"({"waiting": 1.0, "starting": 0.0, "training": 2.5, "re_forming": 0.0, "lost": 5.0})"));
}

TEST(MessageJsonTest, ForeignValues_AreValidJson) {
  JobView job = SampleJob();
  job.reason = "bad \xff bytes";
  job.verdict = NewVerdict(false, "r\xff", TextProto("rank: 5 signal: 9", NewFailure()), 0);
  const json value = json::parse(JsonText(JobJson(job)));
  EXPECT_EQ(value["reason"], "bad ? bytes");
  EXPECT_EQ(value["verdict"]["first_cause"]["signal"], 9);
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
