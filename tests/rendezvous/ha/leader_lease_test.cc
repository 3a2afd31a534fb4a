// Leader election by a lease: the steps of one server, then several servers on simulated time while requests and
// answers are lost or late, servers are paused, and etcd lets leases expire as early as it may.
#include "rendezvous/ha/leader_lease.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kTtl = absl::Seconds(3);
constexpr SteadyTime kStart = SteadyTime::FromStart(absl::Seconds(100));

std::string Describe(const LeaseEffect& effect) {
  if (std::holds_alternative<lease::Observe>(effect)) return "observe";
  if (std::holds_alternative<lease::Grant>(effect)) return "grant";
  if (const auto* campaign = std::get_if<lease::Campaign>(&effect)) return absl::StrCat("campaign ", campaign->lease);
  if (const auto* renew = std::get_if<lease::Renew>(&effect)) return absl::StrCat("renew ", renew->lease);
  if (const auto* revoke = std::get_if<lease::Revoke>(&effect)) return absl::StrCat("revoke ", revoke->lease);
  if (const auto* lead = std::get_if<lease::Lead>(&effect)) return absl::StrCat("lead ", lead->epoch);
  return absl::StrCat("step down: ", std::get<lease::StepDown>(effect).reason);
}

class LeaderLeaseTest : public ::testing::Test {
 protected:
  std::string Take() {
    std::vector<std::string> words;
    for (const LeaseEffect& effect : effects_) words.push_back(Describe(effect));
    effects_.clear();
    return absl::StrJoin(words, ", ");
  }
  std::string Due() {
    now_ = lease_.NextDeadline();
    lease_.OnDeadline(now_, &effects_);
    return Take();
  }
  std::string Renewed(LeaderLease::Renewed result) {
    lease_.OnRenewed(result, now_, &effects_);
    return Take();
  }
  void After(absl::Duration time) { now_ = now_ + time; }
  // Requests its lease at kStart and leads 0.1 s later.
  void Lead() {
    lease_.Start(now_, &effects_);
    lease_.OnObserved(false, now_, &effects_);
    EXPECT_EQ(Take(), "observe, grant");
    After(absl::Seconds(0.05));
    lease_.OnGranted(LeaderLease::Granted{7, kTtl}, now_, &effects_);
    EXPECT_EQ(Take(), "campaign 7");
    EXPECT_FALSE(lease_.leads(now_));
    After(absl::Seconds(0.05));
    lease_.OnCampaign(LeaderLease::Campaigned::kWon, 42, now_, &effects_);
    EXPECT_EQ(Take(), "lead 42");
    EXPECT_TRUE(lease_.leads(now_));
  }

  SteadyTime now_ = kStart;
  LeaderLease lease_{kTtl};
  LeaderLease::Effects effects_;
};

TEST_F(LeaderLeaseTest, ALeaderIsThere_LooksAgainEveryFifteenth) {
  lease_.Start(now_, &effects_);
  EXPECT_EQ(Take(), "observe");
  for (const std::optional<bool> answer : {std::optional<bool>(true), std::optional<bool>()}) {
    lease_.OnObserved(answer, now_, &effects_);
    EXPECT_EQ(Take(), "");
    EXPECT_EQ(lease_.NextDeadline(), now_ + kTtl / 15);
    EXPECT_EQ(Due(), "observe");
  }
}

TEST_F(LeaderLeaseTest, Leads_TwoThirdsOfTheTtlFromWhenTheLastAnsweredRenewalWasSent) {
  Lead();
  EXPECT_EQ(lease_.valid_until(), kStart + absl::Seconds(2)) << "from when the grant was sent";
  EXPECT_EQ(Due(), "renew 7");
  EXPECT_EQ(now_, kStart + absl::Seconds(0.5));
  const SteadyTime sent = now_;
  After(absl::Seconds(1));
  EXPECT_EQ(Renewed(LeaderLease::Renewed::kKept), "");
  EXPECT_EQ(lease_.valid_until(), sent + absl::Seconds(2));
  EXPECT_EQ(Due(), "renew 7") << "at once, as the answer was late";
  EXPECT_EQ(now_, sent + absl::Seconds(1));
}

TEST_F(LeaderLeaseTest, NoRenewalIsAnswered_StepsDownInTime) {
  Lead();
  std::string last;
  while (!lease_.over()) {
    last = Due();
    if (last == "renew 7") last = Renewed(LeaderLease::Renewed::kNoAnswer);
  }
  EXPECT_EQ(last, "step down: no lease renewal was answered for 2s");
  EXPECT_EQ(now_, kStart + absl::Seconds(2));
  EXPECT_EQ(lease_.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST_F(LeaderLeaseTest, Paused_LeadsNoMoreThoughNothingWasCalled_AndALateAnswerDoesNotHelp) {
  Lead();
  Due();
  After(absl::Seconds(10));
  EXPECT_FALSE(lease_.leads(now_));
  EXPECT_EQ(Renewed(LeaderLease::Renewed::kKept), "step down: no lease renewal was answered for 2s");
}

TEST_F(LeaderLeaseTest, LeaseGoneOrFenced_StepsDownAtOnce) {
  Lead();
  Due();
  EXPECT_EQ(Renewed(LeaderLease::Renewed::kGone), "step down: the lease is gone from etcd");
  EXPECT_FALSE(lease_.leads(now_));
  lease_.OnFenced(now_, &effects_);
  EXPECT_EQ(Take(), "");
}

TEST_F(LeaderLeaseTest, OthersWriteTheKeyOrSawItRunOut_StepsDown) {
  Lead();
  LeaderLease other = lease_;
  lease_.OnFenced(now_, &effects_);
  EXPECT_EQ(Take(), "step down: another server leads");
  other.OnLapsed(&effects_);
  EXPECT_EQ(Take(), "step down: the lease expired before its renewal was confirmed");
  EXPECT_FALSE(lease_.leads(now_) || other.leads(now_));
}

// Without an answer the state of the key is unknown. It must not remain, as no server could lead then.
TEST_F(LeaderLeaseTest, CampaignLostUnansweredOrTooLate_GivesTheLeaseBackAndFollows) {
  for (const auto result :
       {LeaderLease::Campaigned::kLost, LeaderLease::Campaigned::kNoAnswer, LeaderLease::Campaigned::kWon}) {
    LeaderLease lease(kTtl);
    lease.Start(now_, &effects_);
    lease.OnObserved(false, now_, &effects_);
    lease.OnGranted(LeaderLease::Granted{9, kTtl}, now_, &effects_);
    Take();
    if (result == LeaderLease::Campaigned::kWon) After(absl::Seconds(2));
    lease.OnCampaign(result, 42, now_, &effects_);
    EXPECT_EQ(Take(), "revoke 9");
    EXPECT_FALSE(lease.leads(now_));
    lease.OnDeadline(lease.NextDeadline(), &effects_);
    EXPECT_EQ(Take(), "observe");
  }
}

TEST_F(LeaderLeaseTest, Resign_GivesTheLeaseBack) {
  Lead();
  lease_.Resign(&effects_);
  EXPECT_EQ(Take(), "revoke 7");
  EXPECT_FALSE(lease_.leads(now_));
}

// etcd and servers on simulated time, in milliseconds.
class World {
 public:
  World(uint32_t seed, int servers) : random_(seed) {
    for (int i = 0; i < servers; ++i) StartServer(i);
  }

  void Run(int64_t until_ms) {
    for (; now_ms_ < until_ms && !broken_; ++now_ms_) {
      ExpireLeases();
      for (auto& [id, server] : servers_) Step(id, &server);
      CheckOneLeader();
    }
  }

  int terms() const { return terms_; }
  int64_t led_ms() const { return led_ms_; }
  bool broken() const { return broken_; }

 private:
  struct Server {
    std::unique_ptr<LeaderLease> lease;
    std::optional<LeaseEffect> question;
    int64_t arrives = 0;   // at etcd, unless it is lost
    int64_t answered = 0;  // when the answer or the timeout arrives
    bool reached = false;  // etcd has processed it
    bool lost_request = false;
    bool lost_answer = false;
    std::optional<bool> observed;
    std::optional<LeaderLease::Granted> granted;
    LeaderLease::Campaigned campaigned = LeaderLease::Campaigned::kNoAnswer;
    LeaderLease::Renewed renewed = LeaderLease::Renewed::kNoAnswer;
    int64_t epoch = 0;
    int64_t paused_until = 0;
  };

  SteadyTime now() const { return SteadyTime::FromStart(absl::Milliseconds(now_ms_)); }
  int64_t Random(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most + 1)); }
  bool OneIn(int n) { return Random(n - 1) == 0; }

  void StartServer(int id) {
    Server server;
    server.lease = std::make_unique<LeaderLease>(kTtl);
    LeaderLease::Effects effects;
    server.lease->Start(now(), &effects);
    Take(&server, std::move(effects));
    servers_[id] = std::move(server);
  }

  void Take(Server* server, LeaderLease::Effects effects) {
    for (LeaseEffect& effect : effects) {
      if (const auto* revoke = std::get_if<lease::Revoke>(&effect)) {
        if (!OneIn(3)) leases_.erase(revoke->lease);
        continue;
      }
      if (std::holds_alternative<lease::Lead>(effect)) {
        ++terms_;
        continue;
      }
      if (std::holds_alternative<lease::StepDown>(effect)) continue;
      server->question = effect;
      server->reached = false;
      server->lost_request = OneIn(6);
      server->lost_answer = OneIn(6);
      server->arrives = now_ms_ + 1 + (OneIn(10) ? Random(3000) : Random(20));
      const int64_t back = server->arrives + 1 + (OneIn(10) ? Random(3000) : Random(20));
      server->answered = server->lost_request || server->lost_answer ? now_ms_ + 500 + Random(1000) : back;
    }
  }

  void AtEtcd(Server* server) {
    const LeaseEffect& question = *server->question;
    if (std::holds_alternative<lease::Observe>(question)) {
      server->observed = leases_.contains(key_lease_);
    } else if (std::holds_alternative<lease::Grant>(question)) {
      leases_[++last_lease_] = now_ms_ + absl::ToInt64Milliseconds(kTtl);
      server->granted = LeaderLease::Granted{last_lease_, kTtl};
    } else if (const auto* campaign = std::get_if<lease::Campaign>(&question)) {
      const bool won = !leases_.contains(key_lease_) && leases_.contains(campaign->lease);
      if (won) {
        key_lease_ = campaign->lease;
        ++revision_;
      }
      server->campaigned = won ? LeaderLease::Campaigned::kWon : LeaderLease::Campaigned::kLost;
      server->epoch = revision_;
    } else if (const auto* renew = std::get_if<lease::Renew>(&question)) {
      const auto found = leases_.find(renew->lease);
      if (found != leases_.end()) found->second = now_ms_ + absl::ToInt64Milliseconds(kTtl);
      server->renewed = found != leases_.end() ? LeaderLease::Renewed::kKept : LeaderLease::Renewed::kGone;
    }
  }

  void Answer(Server* server, LeaderLease::Effects* effects) {
    const LeaseEffect question = *std::exchange(server->question, std::nullopt);
    const bool none = server->lost_request || server->lost_answer;
    LeaderLease& lease = *server->lease;
    if (std::holds_alternative<lease::Observe>(question)) {
      lease.OnObserved(none ? std::nullopt : server->observed, now(), effects);
    } else if (std::holds_alternative<lease::Grant>(question)) {
      lease.OnGranted(none ? std::nullopt : server->granted, now(), effects);
    } else if (std::holds_alternative<lease::Campaign>(question)) {
      lease.OnCampaign(none ? LeaderLease::Campaigned::kNoAnswer : server->campaigned, server->epoch, now(), effects);
    } else {
      lease.OnRenewed(none ? LeaderLease::Renewed::kNoAnswer : server->renewed, now(), effects);
    }
  }

  void Step(int id, Server* server) {
    // A request in flight arrives even while the server is paused.
    if (server->question && !server->reached && !server->lost_request && now_ms_ >= server->arrives) {
      server->reached = true;
      AtEtcd(server);
    }
    if (now_ms_ < server->paused_until) return;
    if (OneIn(4000)) {
      server->paused_until = now_ms_ + Random(8000);
      return;
    }
    LeaderLease::Effects effects;
    if (server->question && now_ms_ >= server->answered) Answer(server, &effects);
    if (now() >= server->lease->NextDeadline()) server->lease->OnDeadline(now(), &effects);
    Take(server, std::move(effects));
    if (server->lease->over() && !server->question) StartServer(id);
  }

  void ExpireLeases() {
    std::erase_if(leases_, [this](const auto& lease) { return lease.second <= now_ms_; });
  }

  void CheckOneLeader() {
    int leaders = 0;
    for (const auto& [id, server] : servers_) leaders += server.lease->leads(now()) ? 1 : 0;
    led_ms_ += leaders > 0 ? 1 : 0;
    broken_ = leaders > 1;
    EXPECT_LE(leaders, 1) << "at " << now_ms_ << " ms";
  }

  std::mt19937 random_;
  int64_t now_ms_ = 0;
  std::map<int, Server> servers_;
  std::map<int64_t, int64_t> leases_;  // lease: expiry, in ms
  int64_t last_lease_ = 0;
  int64_t key_lease_ = 0;
  int64_t revision_ = 0;
  int terms_ = 0;
  int64_t led_ms_ = 0;
  bool broken_ = false;
};

TEST(LeaderLeaseSimulation, NeverTwoLeaders_AndMostOfTheTimeOne) {
  int terms = 0;
  int64_t led_ms = 0;
  constexpr int kSeeds = 40;
  constexpr int64_t kMs = 60'000;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed, 3);
    world.Run(kMs);
    ASSERT_FALSE(world.broken());
    terms += world.terms();
    led_ms += world.led_ms();
  }
  EXPECT_GT(terms, 2 * kSeeds) << "leaders change";
  EXPECT_GT(led_ms, kSeeds * kMs / 4) << "there is a leader";
}

}  // namespace
}  // namespace ddprun::rendezvous
