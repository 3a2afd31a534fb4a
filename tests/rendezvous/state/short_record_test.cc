#include "rendezvous/core/short_record.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/state/record_bytes.h"
#include "tests/rendezvous/state/sample_records.h"

namespace ddprun::rendezvous {
namespace {

WorkerFailure LongFailure() {
  WorkerFailure m = NewFailure();
  m.set_host("node-c");
  m.set_rank(3);
  m.set_exit_code(7);
  m.set_message(std::string(4096, 'm'));
  m.set_traceback(std::string(kMaxTracebackBytes, 't'));
  m.set_error_file(std::string(4096, 'f'));
  m.set_progress(std::string(4096, 'p'));
  return m;
}

TEST(ShortRecordTest, RunningJob_LosesEventsOnly) {
  const JobRecord record = LiveRecord("a", 5);
  JobRecord expected = record;
  expected.events.clear();
  EXPECT_EQ(Shortened(record), expected);
}

TEST(ShortRecordTest, LongTexts_AreCut) {
  JobRecord record = LiveRecord("a", 5);
  record.round.leave_cause = LongFailure();
  record.earlier_verdict = NewVerdict(false, std::string(4096, 'r'), LongFailure(), 7);
  record = Shortened(record);
  EXPECT_LE(record.earlier_verdict->reason().size(), JobHistory::kMaxText);
  for (const WorkerFailure& failure : {*record.round.leave_cause, record.earlier_verdict->first_cause()}) {
    EXPECT_EQ(failure.exit_code(), 7);
    for (const std::string* text :
         {&failure.message(), &failure.traceback(), &failure.error_file(), &failure.progress()}) {
      EXPECT_LE(text->size(), JobHistory::kMaxText);
      EXPECT_GT(text->size(), JobHistory::kMaxText / 2);
    }
  }
  EXPECT_EQ(Shortened(record), record);
}

// A job whose round could be kept can end, however many nodes it has.
TEST(ShortRecordTest, EndedJob_IsSmallerThanItsRoundWas) {
  JobRecord running = LiveRecord("a", 5);
  running.round.leave_reason.clear();
  running.round.leave_cause.reset();
  running.round.nodes.clear();
  for (int i = 0; i < 1000; ++i) {
    running.round.nodes.push_back({absl::StrCat("0123456789abcdef0123456789ab", 1000 + i), std::string(32, 's')});
  }
  running.round.group_world_size = 1000;
  JobRecord ended = running;
  ended.round.leave_cause = LongFailure();
  ended.verdict = NewVerdict(false, "rank 3 exited with code 7", LongFailure(), 7);
  for (const RoundNodeRecord& node : running.round.nodes) {
    ended.told.push_back(node.node_id);
    ended.fenced.push_back({node.node_id, 1, node.session});
  }
  EXPECT_GT(ToBytes(ended).size(), 2 * ToBytes(running).size());
  const std::string bytes = ToBytes(Shortened(ended));
  EXPECT_LT(bytes.size(), ToBytes(Shortened(running)).size());
  const absl::StatusOr<JobRecord> back = RecordFromBytes(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->told, ended.told);
  EXPECT_EQ(back->verdict->reason(), ended.verdict->reason());
  EXPECT_TRUE(EndedJob::FromRecord(*back, SteadyTime::InfinitePast(), absl::UnixEpoch()).unreported);
}

}  // namespace
}  // namespace ddprun::rendezvous
