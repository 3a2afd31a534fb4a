#include "rendezvous/core/ended_jobs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

EndedJob Named(const std::string& id, uint64_t last_round, int nodes = 1) {
  EndedJob job;
  job.view.job_id = id;
  job.last_round = last_round;
  for (int i = 0; i < nodes; ++i) job.node_ids.push_back(absl::StrCat("n", 1'000'000 + i));
  return job;
}

TEST(EndedJobsTest, Forgotten_LeaveTheirHighestRound) {
  EndedJobs jobs;
  jobs.Add(Named("first", 70));
  EXPECT_EQ(jobs.RoundFloor("first"), 70u);
  EXPECT_EQ(jobs.RoundFloor("unknown"), 0u);
  for (size_t i = 0; i < EndedJobs::kMaxJobs; ++i) jobs.Add(Named(absl::StrCat("job", i), 5));
  EXPECT_EQ(jobs.Find("first"), nullptr);
  EXPECT_NE(jobs.Find("job0"), nullptr);
  EXPECT_EQ(jobs.RoundFloor("first"), 70u);  // it may come again
  EXPECT_EQ(jobs.RoundFloor("job0"), 70u);
}

TEST(EndedJobsTest, ManyNodes_MakeOldJobsForgotten) {
  EndedJobs jobs;
  for (int i = 0; i < 5; ++i) jobs.Add(Named(absl::StrCat("job", i), 1, 50'000));
  EXPECT_EQ(jobs.Find("job0"), nullptr);
  for (int i = 1; i < 5; ++i) EXPECT_NE(jobs.Find(absl::StrCat("job", i)), nullptr);
  jobs.Remove("job1");
  jobs.Add(Named("job5", 1, 50'000));
  EXPECT_NE(jobs.Find("job2"), nullptr);
}

TEST(EndedJobTest, Concerns_WhoeverBelongedToIt) {
  EndedJob job = Named("x", 7, 3);
  Join join = NewJoin();
  join.set_node_id("n1000001");
  EXPECT_TRUE(job.Concerns(join));
  join.set_node_id("stranger");
  EXPECT_FALSE(job.Concerns(join));
  *join.mutable_current() = Assignment{};
  join.mutable_current()->set_round(7);
  EXPECT_TRUE(job.Concerns(join));
  join.mutable_current()->set_round(8);
  EXPECT_FALSE(job.Concerns(join));
  join.mutable_current()->set_round(7);
  job.told = false;
  EXPECT_FALSE(job.Concerns(join));
}

TEST(EndedJobTest, FromRecord_KnowsWhenItBeganAndEnded) {
  JobRecord record;
  record.verdict = Verdict{};
  record.age = absl::Seconds(50);
  AddAge(absl::Seconds(10), &record);
  const JobView view = EndedJob::FromRecord(record, SteadyTime::FromStart(absl::Seconds(100))).view;
  EXPECT_EQ(view.began, SteadyTime::FromStart(absl::Seconds(40)));
  EXPECT_EQ(view.ended, SteadyTime::FromStart(absl::Seconds(90)));
  EXPECT_EQ(view.age, absl::Seconds(50));
}

// Protocol 4.5: who was of the round, is not known to be gone and was not told, may have workers.
TEST(EndedJobTest, FromRecord_KnowsWhoHasNotReported) {
  JobRecord record;
  record.verdict = Verdict{};
  record.highest_round = record.round.number = 3;
  record.round.nodes = {{"a"}, {"b", "", true}};
  record.told = {"a"};
  EXPECT_FALSE(EndedJob::FromRecord(record, SteadyTime::InfinitePast()).unreported);
  record.round.nodes[1].gone = false;
  EXPECT_TRUE(EndedJob::FromRecord(record, SteadyTime::InfinitePast()).unreported);
}

}  // namespace
}  // namespace ddprun::rendezvous
