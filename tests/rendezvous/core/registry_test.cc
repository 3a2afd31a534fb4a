#include "rendezvous/core/registry.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "base/secret.h"
#include "gtest/gtest.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/limits.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

Join Of(const std::string& job, const std::string& node, int max_nodes = 1) {
  Join join = TextProto(
      absl::Substitute("job_id: '$0' node_id: '$1' host: '$1' address: '$1' store_port: 1000", job, node), NewJoin());
  join.mutable_settings()->set_max_nodes(max_nodes);
  join.mutable_settings()->set_min_nodes(max_nodes);
  return join;
}

class TestRegistry : public Registry {
 public:
  explicit TestRegistry(SteadyTime start = SteadyTime::InfinitePast(), bool keeps_records = false)
      : Registry(start, keeps_records) {}
  using Registry::Registry;

  Effects Tell(const Join& from, const LauncherMessage& message, int seconds) {
    Effects effects;
    OnMessage(from.job_id(), from.node_id(), from.incarnation(), message, At(seconds), &effects);
    return effects;
  }
  // All of them join; the effects of the last Join.
  Effects Join(const std::vector<rendezvous::Join>& joins, int seconds) {
    Effects effects;
    for (const rendezvous::Join& join : joins) effects = Tell(join, join, seconds);
    return effects;
  }
  Effects Close(const rendezvous::Join& join, int seconds) {
    Effects effects;
    OnStreamClosed(join.job_id(), join.node_id(), join.incarnation(), At(seconds), &effects);
    return effects;
  }
  Effects Due(int seconds) {
    Effects effects;
    OnDeadline(At(seconds), &effects);
    return effects;
  }
  std::optional<v1::Job> Get(const std::string& job_id, int seconds) const { return GetJob(job_id, At(seconds)); }
};

const Assignment* FindAssign(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const auto* assign = ToldMessage<Assign>(effect)) return &assign->assignment();
  }
  return nullptr;
}

// Secrets that the nodes of the round in `effects` prove to the store.
std::vector<std::string> Secrets(const Effects& effects) {
  std::vector<std::string> secrets;
  for (const Effect& effect : effects) {
    if (const auto* assign = ToldMessage<Assign>(effect)) secrets.push_back(assign->assignment().store_secret());
  }
  return secrets;
}

// The secret of the store of group rank 0 goes to the nodes of its round, and each round has that of its own store.
TEST(RegistryTest, StoreSecret_IsThatOfTheRoundsStore) {
  TestRegistry registry;
  Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  b.mutable_settings()->set_max_restarts(1);
  a.mutable_settings()->set_max_restarts(1);
  a.set_store_secret("the secret of a!");
  b.set_store_secret("the secret of b!");
  EXPECT_TRUE(Secrets(registry.Join({a}, 0)).empty());
  EXPECT_EQ(Secrets(registry.Join({b}, 0)), std::vector<std::string>(2, "the secret of a!"));
  registry.Tell(a, NewWorkerFailed(1, TextProto("host: 'a' rank: 0 local_rank: 0 exit_code: 1", NewFailure())), 1);
  EXPECT_TRUE(Secrets(registry.Tell(b, NewReady(1, 1001, "second of b"), 1)).empty());
  EXPECT_EQ(Secrets(registry.Tell(a, NewReady(1, 1001, "second of a"), 1)), std::vector<std::string>(2, "second of a"));
}

// A server that is started again hands it on from what a node reports.
TEST(RegistryTest, StoreSecret_OfARoundThatIsTakenUp_IsKept) {
  TestRegistry registry;
  Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  b.set_incarnation(2);
  a.set_incarnation(2);
  *a.mutable_current() = TextProto<Assignment>(
      "round: 7 group_world_size: 2 world_size: 2 role_world_size: 2 master_addr: 'a' master_port: 1000 "
      "store_secret: 'the secret of a!'");
  *b.mutable_current() = TextProto("group_rank: 1 base_rank: 1 base_role_rank: 1", a.current());
  b.set_phase(Join::PHASE_RUNNING);
  a.set_phase(Join::PHASE_RUNNING);
  registry.Join({a, b}, 0);
  ASSERT_EQ(StateOf(*registry.Get("x", 0)), JobState::kRunning);
  // It never got its Assign.
  b.set_incarnation(3);
  b.set_phase(Join::PHASE_IDLE);
  b.clear_current();
  EXPECT_EQ(Secrets(registry.Join({b}, 1)), std::vector<std::string>{"the secret of a!"});
}

// Protocol 1: messages of nodes that have not joined are ignored.
TEST(RegistryTest, StrangersMessages_AreIgnored) {
  TestRegistry registry;
  const Join a = Of("x", "a");
  registry.Join({a}, 0);
  Join other = a;
  other.set_incarnation(2);
  EXPECT_TRUE(registry.Tell(other, NewGroupSucceeded(1), 0).empty());
  EXPECT_TRUE(registry.Tell(Of("x", "b"), Leave{}, 0).empty());
  EXPECT_TRUE(registry.Tell(Of("y", "a"), Heartbeat{}, 0).empty());
  EXPECT_EQ(StateOf(*registry.Get("x", 0)), JobState::kRunning);
}

// Protocol 5: a server that ends by itself stays for those who may still come for the verdict.
TEST(RegistryTest, UnheardUntil_LostAfterItSucceeded_UntilItHasHeard) {
  TestRegistry registry;
  const Join a = Of("x", "a", 2);
  Join b = Of("x", "b", 2);
  registry.Join({a, b}, 0);
  registry.Tell(b, NewGroupSucceeded(1), 1);
  registry.Close(b, 2);
  registry.Due(3);
  EXPECT_EQ(registry.Get("x", 3)->node_count(), 1);
  EXPECT_EQ(registry.UnheardUntil(), SteadyTime::InfinitePast()) << "the job has not ended";
  registry.Tell(a, NewGroupSucceeded(1), 3);
  EXPECT_EQ(registry.UnheardUntil(), At(2) + absl::Milliseconds(3500));
  b.set_incarnation(2);
  b.set_phase(Join::PHASE_SUCCEEDED);
  *b.mutable_current() = TextProto<Assignment>(
      "round: 1 group_world_size: 2 world_size: 2 role_world_size: 2 master_addr: 'a' master_port: 1000");
  const Effects effects = registry.Join({b}, 4);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_NE(ToldMessage<Finish>(effects[0]), nullptr);
  EXPECT_EQ(registry.UnheardUntil(), SteadyTime::InfinitePast());
}

TEST(RegistryTest, UnheardUntil_NodesThatLeftOrFailedAreNotExpected) {
  TestRegistry registry;
  const Join a = Of("x", "a"), b = Of("y", "b");
  registry.Join({a}, 0);
  registry.Tell(a, NewLeave("received SIGTERM", false), 1);
  registry.Join({b}, 0);
  registry.Close(b, 1);
  registry.Due(2);
  EXPECT_EQ(registry.live_jobs(), 0u);
  EXPECT_EQ(registry.UnheardUntil(), SteadyTime::InfinitePast());
}

// Protocol 4.7.
TEST(RegistryTest, ServerStopped_Resumed_ReadsMessagesBeforeLosingNodes) {
  TestRegistry registry;
  const Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  registry.Join({a, b}, 0);
  for (const Effect& effect : registry.Due(10)) EXPECT_FALSE(std::holds_alternative<Close>(effect));
  registry.Tell(a, Heartbeat{}, 11);
  EXPECT_EQ(registry.NextDeadline(), At(17)) << "as long again as it was late";
  registry.Due(17);
  EXPECT_EQ(registry.Get("x", 17)->node_count(), 0) << "a was silent for six seconds since, b for 17";
}

// Protocol 4.5: a node that receives the notice that a round was assigned without it is no longer in touch.
TEST(RegistryTest, Welcome_NamesTheRoundThatTheNodeMissed) {
  TestRegistry registry;
  const auto missed = [&](const Join& join) {
    const Effects effects = registry.Join({join}, 0);
    for (const Effect& effect : effects) {
      if (const auto* welcome = ToldMessage<Welcome>(effect)) return welcome->missed_round();
    }
    return uint64_t{999};
  };
  Join a = Of("x", "a");
  EXPECT_EQ(missed(a), 0u) << "there was none yet";
  EXPECT_EQ(missed(Of("x", "spare")), 1u);
  a.set_incarnation(2);
  EXPECT_EQ(missed(a), 0u) << "it has a place in it";
}

TEST(RegistryTest, ManyJobs_EachHasItsDeadline) {
  TestRegistry registry;
  constexpr int kJobs = 300;
  for (int i = 0; i < kJobs; ++i) {
    Join join = Of(absl::StrCat("job", i), "a", 2);
    join.mutable_origin()->set_in_process(true);
    *join.mutable_settings()->mutable_join_timeout() = FromDuration(absl::Seconds(10 + i));
    registry.Join({join}, 0);
  }
  EXPECT_EQ(registry.live_jobs(), kJobs);
  EXPECT_EQ(registry.Due(1).size(), kJobs) << "each is told what it waits for";
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_EQ(registry.NextDeadline(), At(10 + i));
    const Effects effects = registry.Due(10 + i);
    ASSERT_EQ(effects.size(), 2u);
    EXPECT_EQ(std::get<Report>(effects[0]).event.kind(), event_kind::kJobFailed);
    EXPECT_EQ(std::get<rendezvous::Tell>(effects[1]).job_id, absl::StrCat("job", i));
    EXPECT_NE(ToldMessage<Finish>(effects[1]), nullptr);
  }
  EXPECT_EQ(registry.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST(RegistryTest, ListJobs_PagesThroughLiveAndEnded) {
  TestRegistry registry;
  registry.SetWallTimeAtStart(absl::FromUnixSeconds(1000));
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    const Join join = Of(id, "n");
    registry.Join({join}, 0);
    if (*id == 'b' || *id == 'e') registry.Tell(join, NewGroupSucceeded(1), 1);
  }
  std::string seen;
  for (std::vector<v1::Job> page = registry.ListJobs(At(3), "", 2); !page.empty();
       page = registry.ListJobs(At(3), page.back().job_id(), 2)) {
    EXPECT_LE(page.size(), 2u);
    for (const v1::Job& view : page) {
      const bool ended = IsEnd(StateOf(view));
      absl::StrAppend(&seen, view.job_id(), ended ? "! " : " ");
      EXPECT_EQ(view.age().seconds(), ended ? 1 : 3);
      EXPECT_EQ(view.begin().seconds(), 1000);
      EXPECT_EQ(view.end().seconds(), ended ? 1001 : 0);
      EXPECT_TRUE(view.nodes().empty());
    }
  }
  EXPECT_EQ(seen, "a b! c d e! ");
}

TEST(RegistryTest, GetJob_ShowsNodes) {
  TestRegistry registry;
  Join join = Of("x", "a");
  join.set_slots(3);
  join.set_role("trainer");
  registry.Join({join}, 10);
  const Join spare = Of("x", "b");
  registry.Join({spare}, 12);
  const auto view = registry.Get("x", 15);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->world_size(), 3);
  EXPECT_EQ(view->round(), 1u);
  ASSERT_EQ(view->nodes_size(), 2);
  EXPECT_EQ(view->nodes(0).state(), v1::Node::STATE_RUNNING);
  EXPECT_EQ(view->nodes(0).role(), "trainer");
  EXPECT_EQ(view->nodes(0).node_id(), ShownId("a")) << "an id to join with is a secret";
  EXPECT_EQ(ToDuration(view->nodes(0).last_heard()), absl::Seconds(5));
  EXPECT_EQ(view->nodes(1).state(), v1::Node::STATE_SPARE);
  EXPECT_EQ(view->nodes(1).group_rank(), -1);
}

// Protocol 6: all hosts of a job of moderate size are named, few of many.
TEST(RegistryTest, Waiting_NamesAllHostsOrFewOfMany) {
  for (const int nodes : {40, kMaxHostsTold, kMaxHostsTold + 1}) {
    TestRegistry registry;
    for (int i = 0; i < nodes; ++i) {
      const Join join = Of("x", absl::StrCat("n", i), nodes + 1);
      registry.Join({join}, 0);
    }
    const Effects effects = registry.Due(1);
    ASSERT_EQ(effects.size(), static_cast<size_t>(nodes));
    const auto* waiting = ToldMessage<Waiting>(effects[0]);
    ASSERT_NE(waiting, nullptr);
    EXPECT_EQ(waiting->nodes_joined(), nodes);
    EXPECT_EQ(waiting->hosts().size(), static_cast<size_t>(nodes > kMaxHostsTold ? kMaxHostsNamed : nodes));
  }
}

// The number of messages grows linearly with the nodes: no node is notified of each other node.
TEST(RegistryTest, ThousandJoins_AreAnsweredByTwoMessagesEach) {
  TestRegistry registry;
  constexpr int kNodes = 1000;
  size_t said = 0;
  for (int i = 0; i < kNodes; ++i) {
    const Join join = Of("x", absl::StrCat("n", i), kNodes);
    for (const Effect& effect : registry.Join({join}, 0)) said += std::holds_alternative<Report>(effect) ? 0 : 1;
  }
  EXPECT_EQ(said, 2u * kNodes);
  EXPECT_EQ(StateOf(*registry.Get("x", 0)), JobState::kRunning);
}

Join WithSecret(Join join, char c) {
  join.set_session_secret(std::string(32, c));
  return join;
}

const Rejected* FindRejected(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const auto* rejected = ToldMessage<Rejected>(effect)) return rejected;
  }
  return nullptr;
}

// Protocol 2.4: who knows a node's id only is not that node, whatever incarnation it claims.
TEST(RegistryTest, Join_WithoutTheNodesSecret_IsRejectedAndChangesNothing) {
  TestRegistry registry;
  const Join a = WithSecret(Of("x", "a"), 'a');
  registry.Join({a}, 0);
  for (Join stranger : {WithSecret(a, 'b'), WithSecret(a, '\0'), Of("x", "a")}) {
    stranger.set_incarnation(uint64_t{1} << 40);
    stranger.set_address("elsewhere");
    const Effects effects = registry.Join({stranger}, 1);
    ASSERT_EQ(effects.size(), 2);
    EXPECT_NE(FindRejected(effects), nullptr);
    EXPECT_EQ(std::get<Close>(effects[1]).incarnation, stranger.incarnation());
  }
  // Its stream stands, and it may come back.
  const Effects beat = registry.Tell(a, Heartbeat{}, 1);
  ASSERT_EQ(beat.size(), 1);
  EXPECT_NE(ToldMessage<HeartbeatAck>(beat[0]), nullptr);
  Join again = a;
  again.set_incarnation(2);
  EXPECT_EQ(FindRejected(registry.Join({again}, 1)), nullptr);
}

// The records that a server has persisted.
SavedState Kept(const Effects& effects) {
  SavedState saved;
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect)) saved.jobs = {*persist->record};
  }
  return saved;
}

// Protocol 2.4, over a restart with records.
TEST(RegistryTest, Restored_StrangerComesFirstWithANodesId_IsRejected) {
  TestRegistry before(At(0), true);
  const Join a = WithSecret(Of("x", "a"), 'a');
  const SavedState saved = Kept(before.Join({a}, 10));
  ASSERT_EQ(saved.jobs.size(), 1u);
  TestRegistry after(At(20), true);
  after.Restore(saved);
  for (Join stranger : {WithSecret(a, 'b'), Of("x", "a")}) {
    stranger.set_incarnation(uint64_t{1} << 40);
    EXPECT_NE(FindRejected(after.Join({stranger}, 20)), nullptr);
  }
  EXPECT_EQ(after.Get("x", 20)->node_count(), 0);
  Join again = a;
  again.set_incarnation(2);
  EXPECT_EQ(FindRejected(after.Join({again}, 21)), nullptr);
}

// A record names spares as well as lost nodes, so that more of them may be restored than are remembered otherwise.
TEST(RegistryTest, Restored_LostNodesDoNotGrowInNumber) {
  TestRegistry before(At(0), true);
  Join a = Of("x", "a");
  a.mutable_settings()->set_max_restarts(1);
  SavedState saved = Kept(before.Join({a}, 10));
  ASSERT_EQ(saved.jobs.size(), 1u);
  const int others = 2 * DepartedNodes::kMaxLost;
  for (int i = 0; i < others; ++i) saved.jobs[0].add_others(absl::StrCat("lost", i));
  TestRegistry after(At(20), true);
  after.Restore(saved);
  a.set_incarnation(2);
  const Effects start = after.Join({a}, 20);
  ASSERT_NE(FindAssign(start), nullptr);
  for (int i = 0; i < 10; ++i) {
    Join spare = Of("x", absl::StrCat("spare", i));
    *spare.mutable_settings() = a.settings();
    after.Join({spare}, 40 + i);
    after.Close(spare, 40 + i);
    after.Due(41 + i);
  }
  const WorkerFailed failed = NewWorkerFailed(FindAssign(start)->round(), TextProto("rank: 0", NewFailure()));
  const SavedState kept = Kept(after.Tell(a, failed, 60));
  ASSERT_EQ(kept.jobs.size(), 1u);
  EXPECT_EQ(kept.jobs[0].others_size(), others);
  EXPECT_EQ(*kept.jobs[0].others().rbegin(), "spare9");
}

TEST(RegistryTest, EndedJobRunsAgain_IsForgottenByItsLastEnd) {
  TestRegistry registry;
  const auto run = [&](const std::string& job) {
    const Join node = Of(job, absl::StrCat("node of ", job));
    const Effects start = registry.Join({node}, 1);
    ASSERT_NE(FindAssign(start), nullptr) << job;
    registry.Tell(node, NewWorkerFailed(FindAssign(start)->round(), TextProto("rank: 0", NewFailure())), 2);
    registry.Close(node, 2);
  };
  run("x");
  run("y");
  // Another launcher, so that x begins again.
  const Join again = Of("x", "again");
  ASSERT_NE(FindAssign(registry.Join({again}, 100)), nullptr);
  registry.Tell(again, NewWorkerFailed(registry.Get("x", 100)->round(), TextProto("rank: 0", NewFailure())), 101);
  for (size_t i = 2; i <= EndedJobs::kMaxJobs; ++i) run(absl::StrCat("job", i));
  EXPECT_TRUE(registry.Get("x", 102).has_value());
  EXPECT_FALSE(registry.Get("y", 102).has_value());
}

TEST(RegistryTest, GetJob_ShowsWhereItsTimeWent) {
  TestRegistry registry;
  const Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  registry.Join({a}, 0);
  registry.Join({b}, 3);
  const std::optional<v1::Job> view = registry.Get("x", 8);
  EXPECT_EQ(view->goodput().waiting().seconds(), 3);
  EXPECT_EQ(view->goodput().starting().seconds(), 5);
}

// Protocol 4.5: any node may have workers of the last round of a job that ended, if its record does not name them.
TEST(RegistryTest, Restored_EndedJobWithoutItsNodes_NextRoundWaitsForAll) {
  TestRegistry before(At(0), true);
  const Join a = Of("x", "a");
  before.Join({a}, 10);
  SavedState saved = Kept(before.Tell(a, NewWorkerFailed(1, TextProto("host: 'a' rank: 0", NewFailure())), 11));
  ASSERT_EQ(saved.jobs.size(), 1u);
  ASSERT_TRUE(saved.jobs[0].has_verdict());
  saved.jobs[0] = Shortened(saved.jobs[0]);
  saved.longest_life = absl::Hours(1);
  TestRegistry after(At(20), true);
  after.Restore(saved);
  const Join b = Of("x", "b");
  EXPECT_EQ(FindAssign(after.Join({b}, 20)), nullptr);
  const Effects effects = after.Due(25);
  ASSERT_NE(FindAssign(effects), nullptr);
  EXPECT_GT(FindAssign(effects)->round(), 1u);
}

// A stranger must not lift the fence of a node by joining with its id.
TEST(RegistryTest, FencedNode_StrangerWithItsId_IsRejected) {
  TestRegistry registry;
  const auto elastic = [](Join join) {
    join.mutable_settings()->set_min_nodes(1);
    return join;
  };
  const Join a = elastic(WithSecret(Of("x", "a", 2), 'a')), b = elastic(WithSecret(Of("x", "b", 2), 'b'));
  registry.Join({a, b}, 0);
  registry.Tell(a, NewLeave("received SIGTERM", true), 1);
  Join stranger = WithSecret(a, 'c');
  stranger.set_incarnation(9);
  EXPECT_NE(FindRejected(registry.Join({stranger}, 1)), nullptr);
  EXPECT_EQ(FindAssign(registry.Tell(b, NewReady(1, 1001), 1)), nullptr) << "a has workers still";
  registry.Tell(b, NewLeave("", false), 1);
  // It is also refused after the job's end, when the id is used again.
  EXPECT_NE(FindRejected(registry.Join({stranger}, 2)), nullptr);
  EXPECT_EQ(StateOf(*registry.Get("x", 2)), JobState::kFailed);
}

Join Reporting(Join join, uint64_t round) {
  *join.mutable_current() = TextProto<Assignment>(
      "role_world_size: 1 group_world_size: 1 world_size: 1 master_addr: 'elsewhere' master_port: 1");
  join.mutable_current()->set_round(round);
  return join;
}

// Protocol 4.6: rounds that no server can have assigned.
TEST(RegistryTest, Join_ReportsImpossibleRound_IsRejectedAndChangesNothing) {
  TestRegistry registry;
  const Join a = Of("x", "a", 2);
  const Join b = Of("x", "b", 2);
  registry.Join({a}, 0);
  const Effects start = registry.Join({b}, 0);
  ASSERT_NE(FindAssign(start), nullptr);
  const uint64_t round = FindAssign(start)->round();
  for (const uint64_t reported : {round + kMaxRoundsAhead + 1, uint64_t{1} << 48, uint64_t{1} << 62, UINT64_MAX}) {
    const Join stranger = Reporting(Of("x", "s", 2), reported);
    EXPECT_NE(FindRejected(registry.Join({stranger}, 1)), nullptr) << reported;
  }
  EXPECT_EQ(registry.Get("x", 1)->node_count(), 2);
}

// A forged report about a job without a previous one does not prevent its real nodes from joining the next server.
TEST(RegistryTest, PoisonedRound_NextServerStillServesTheJob) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const auto settings = [](Join join) {
    join.mutable_settings()->set_min_nodes(1);
    return join;
  };
  TestRegistry poisoned(SteadyTime::InfinitePast(), false, MaxReportedRound(now));
  const Join liar = settings(Reporting(Of("x", "s", 2), MaxReportedRound(now)));
  EXPECT_EQ(FindRejected(poisoned.Join({liar}, 0)), nullptr);
  const Join worse = settings(Reporting(Of("y", "s", 2), MaxReportedRound(now) + 1));
  EXPECT_NE(FindRejected(poisoned.Join({worse}, 0)), nullptr);
  TestRegistry next(SteadyTime::InfinitePast(), false, MaxReportedRound(now + absl::Seconds(1)));
  const Join honest = settings(Reporting(Of("x", "a", 2), MaxReportedRound(now) + 1000));
  EXPECT_EQ(FindRejected(next.Join({honest}, 0)), nullptr);
}

// Jobs created from one address are limited in number, and so are the nodes in all of them.
TEST(RegistryTest, TooManyNodesInTheJobsOfOnePeer_NewOnesAreRefusedOthersAreNot) {
  TestRegistry registry;
  const auto from = [](const std::string& peer, const std::string& job, const std::string& node) {
    Join join = Of(job, node, kMaxNodes);
    join.mutable_origin()->set_peer(peer);
    return join;
  };
  const auto is_refused = [&](const Join& join) { return FindRejected(registry.Join({join}, 0)) != nullptr; };
  for (size_t i = 0; i < Registry::kMaxNodesPerPeer; ++i) {
    // From several addresses: whose job it is counts.
    ASSERT_FALSE(is_refused(from(i < 10 ? "stranger" : "crowd", absl::StrCat("job", i % 10), absl::StrCat("node", i))));
  }
  EXPECT_TRUE(is_refused(from("crowd", "job1", "one more")));
  EXPECT_TRUE(is_refused(from("stranger", "another job", "node")));
  EXPECT_FALSE(is_refused(from("good", "good job", "node")));
  Join again = from("stranger", "job1", "node1");
  again.set_incarnation(2);
  EXPECT_FALSE(is_refused(again)) << "it has its place";
  registry.Tell(again, NewLeave("enough"), 0);
  EXPECT_FALSE(is_refused(from("crowd", "job1", "one more")));
  EXPECT_TRUE(is_refused(from("crowd", "job1", "yet one more")));
}

}  // namespace
}  // namespace ddprun::rendezvous
