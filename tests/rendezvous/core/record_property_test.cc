// A server can read every record that it writes: random event lists with extreme values from launchers, workers and
// clocks, with restarts from the written records.
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/registry.h"
#include "rendezvous/core/validate.h"
#include "tests/rendezvous/core/random_events.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kLists = 400;
constexpr int kEvents = 150;

class ExtremeServer {
 public:
  explicit ExtremeServer(uint64_t seed) : random_(seed), launchers_(seed) {}

  void Do() {
    RandomEvent event = launchers_.Next();
    Effects effects;
    registry_->SetWallTimeAtStart(AnyTime());
    if (auto* said = std::get_if<Said>(&event)) {
      Exaggerate(&said->message);
      LauncherMessage checked = said->message;
      if (!std::holds_alternative<Join>(checked) || Validate(&checked).ok()) {
        registry_->OnMessage(said->job_id, said->node_id, said->incarnation, said->message, now_, &effects);
      }
      if (!std::holds_alternative<Join>(said->message)) {
        registry_->OnMessage(said->job_id, said->node_id, said->incarnation, AnyProgress(), now_, &effects);
      }
    } else if (const auto* closed = std::get_if<StreamClosed>(&event)) {
      registry_->OnStreamClosed(closed->job_id, closed->node_id, closed->incarnation, now_, &effects);
    } else if (const auto* passes = std::get_if<TimePasses>(&event)) {
      now_ = now_ + (OneIn(50) ? absl::Hours(24 * 365 * 20) : passes->by);
      registry_->OnDeadline(now_, &effects);
    } else {
      Restart();
    }
    for (const Effect& effect : effects) {
      if (const auto* persist = std::get_if<Persist>(&effect)) Write(*persist->record);
    }
    launchers_.Hear(effects);
  }

 private:
  template <typename T>
  T AnyOf(std::initializer_list<T> values) {
    return *(values.begin() + random_() % values.size());
  }
  bool OneIn(uint64_t n) { return random_() % n == 0; }
  int64_t AnyStep() { return AnyOf<int64_t>({0, 1, 2'000'000'000, INT64_MAX - 1, INT64_MAX}); }
  absl::Duration AnyDuration() {
    return AnyOf({absl::ZeroDuration(), absl::Nanoseconds(1), absl::Nanoseconds(1) / 4, absl::Seconds(1), kMaxDuration,
                  2 * kMaxDuration, absl::InfiniteDuration()});
  }
  absl::Time AnyTime() {
    return AnyOf({absl::UnixEpoch(), absl::FromUnixSeconds(1'700'000'000), absl::FromUnixSeconds(-1),
                  absl::FromUnixSeconds(INT64_MAX / 4), absl::InfinitePast(), absl::InfiniteFuture()});
  }
  std::string AnyText() {
    return AnyOf<std::string>({"", "text", "\xff\xfe", std::string(3, '\0'), std::string(100'000, 'x'), "a\nb\x1b[2J"});
  }

  void Exaggerate(LauncherMessage* message) {
    if (auto* join = std::get_if<Join>(message)) join->mutable_origin()->set_user(AnyText());
    if (auto* join = std::get_if<Join>(message); join != nullptr && join->has_current() && OneIn(3)) {
      join->mutable_current()->set_restart_count(AnyOf({0, 1, kMaxRestarts, INT32_MAX - 1, INT32_MAX}));
    }
    auto* const failed = std::get_if<WorkerFailed>(message);
    if (failed == nullptr) return;
    WorkerFailure& failure = *failed->mutable_failure();
    failure.set_step(AnyStep());
    failure.set_rank(AnyOf({-1, 0, 1, INT32_MAX}));
    *failure.mutable_ran_for() = FromDuration(AnyDuration());
    *failure.mutable_at() = FromTime(AnyTime());
    for (std::string* text : {failure.mutable_message(), failure.mutable_traceback(), failure.mutable_error_file(),
                              failure.mutable_progress()}) {
      *text = AnyText();
    }
  }

  Progress AnyProgress() {
    Progress progress;
    RankProgress& rank = *progress.add_ranks();
    rank.set_step(AnyStep());
    rank.set_loss(
        AnyOf({0.0, -1e308, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}));
    *rank.mutable_ago() = FromDuration(AnyDuration());
    return progress;
  }

  void Write(const JobRecord& record) {
    std::string bytes = ToBytes(record);
    const absl::StatusOr<JobRecord> back = RecordFromBytes(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->highest_round(), record.highest_round());
    EXPECT_EQ(back->restarts_charged(), record.restarts_charged());
    JobRecord read, written;  // the members of the round
    *read.mutable_round()->mutable_nodes() = back->round().nodes();
    *read.mutable_fenced() = back->fenced();
    *written.mutable_round()->mutable_nodes() = record.round().nodes();
    *written.mutable_fenced() = record.fenced();
    EXPECT_EQ(read, written);
    EXPECT_EQ(back->restarts().charge_ages_size(), record.restarts().charge_ages_size());
    EXPECT_GE(record.restarts_charged(), 0);
    kept_[record.job_id()] = std::move(bytes);
  }

  void Restart() {
    SavedState saved;
    for (const auto& [job_id, bytes] : kept_) {
      absl::StatusOr<JobRecord> record = RecordFromBytes(bytes);
      ASSERT_TRUE(record.ok()) << record.status();
      AddAge(AnyTime() - absl::FromUnixSeconds(1'700'000'000), &*record);
      ASSERT_TRUE(RecordFromBytes(ToBytes(*record)).ok()) << RecordFromBytes(ToBytes(*record)).status();
      saved.jobs.push_back(*std::move(record));
    }
    registry_ = std::make_unique<Registry>(now_, true);
    registry_->Restore(saved);
  }

  std::mt19937_64 random_;
  RandomLaunchers launchers_;
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(100));
  std::unique_ptr<Registry> registry_ = std::make_unique<Registry>(now_, true);
  std::map<std::string, std::string> kept_;  // record bytes by job id
};

TEST(RecordPropertyTest, AnyEventList_RecordsAreReadBack) {
  for (uint64_t seed = 1; seed <= kLists; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ExtremeServer server(seed);
    for (int i = 0; i < kEvents && !testing::Test::HasFailure(); ++i) server.Do();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
