#include "rendezvous/core/registry.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/short_record.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

Join Of(const std::string& job, const std::string& node, int max_nodes = 1) {
  Join join = NewJoin();
  join.set_job_id(job);
  join.set_node_id(node);
  join.set_host(node);
  join.set_address(node);
  join.set_store_port(1000);
  join.mutable_settings()->set_max_nodes(max_nodes);
  join.mutable_settings()->set_min_nodes(max_nodes);
  return join;
}

Effects Tell(Registry* registry, const Join& from, const LauncherMessage& message, SteadyTime now) {
  Effects effects;
  registry->OnMessage(from.job_id(), from.node_id(), from.incarnation(), message, now, &effects);
  return effects;
}

const Assignment* FindAssign(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const auto* assign = ToldMessage<Assign>(effect)) return &assign->assignment();
  }
  return nullptr;
}

// What the nodes of the round that is given out in `effects` are told to prove to the store.
std::vector<std::string> Secrets(const Effects& effects) {
  std::vector<std::string> secrets;
  for (const Effect& effect : effects) {
    if (const auto* assign = ToldMessage<Assign>(effect)) secrets.push_back(assign->assignment().store_secret());
  }
  return secrets;
}

// The secret of the store of group rank 0 goes to the nodes of its round, and each round has that of its own store.
TEST(RegistryTest, StoreSecret_IsThatOfTheRoundsStore) {
  Registry registry(SteadyTime::InfinitePast());
  Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  b.mutable_settings()->set_max_restarts(1);
  a.mutable_settings()->set_max_restarts(1);
  a.set_store_secret("the secret of a!");
  b.set_store_secret("the secret of b!");
  EXPECT_TRUE(Secrets(Tell(&registry, a, a, At(0))).empty());
  EXPECT_EQ(Secrets(Tell(&registry, b, b, At(0))), std::vector<std::string>(2, "the secret of a!"));
  Tell(&registry, a, NewWorkerFailed(1, TextProto("host: 'a' rank: 0 local_rank: 0 exit_code: 1", NewFailure())),
       At(1));
  EXPECT_TRUE(Secrets(Tell(&registry, b, NewReady(1, 1001, "second of b"), At(1))).empty());
  EXPECT_EQ(Secrets(Tell(&registry, a, NewReady(1, 1001, "second of a"), At(1))),
            std::vector<std::string>(2, "second of a"));
}

// A server that is started again hands it on from what a node reports.
TEST(RegistryTest, StoreSecret_OfARoundThatIsTakenUp_IsKept) {
  Registry registry(SteadyTime::InfinitePast());
  Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  b.set_incarnation(2);
  a.set_incarnation(2);
  Assignment first;
  first.set_round(7);
  first.set_role_world_size(2);
  first.set_group_world_size(2);
  first.set_world_size(2);
  first.set_master_addr("a");
  first.set_master_port(1000);
  first.set_store_secret("the secret of a!");
  Assignment second = first;
  second.set_base_role_rank(1);
  second.set_group_rank(1);
  second.set_base_rank(1);
  *a.mutable_current() = first;
  *b.mutable_current() = second;
  b.set_phase(Join::PHASE_RUNNING);
  a.set_phase(Join::PHASE_RUNNING);
  Tell(&registry, a, a, At(0));
  Tell(&registry, b, b, At(0));
  ASSERT_EQ(registry.GetJob("x", At(0))->state, JobState::kRunning);
  // It never got its Assign.
  b.set_incarnation(3);
  b.set_phase(Join::PHASE_IDLE);
  b.clear_current();
  EXPECT_EQ(Secrets(Tell(&registry, b, b, At(1))), std::vector<std::string>{"the secret of a!"});
}

TEST(RegistryTest, Empty_HasNothingToDo) {
  Registry registry(SteadyTime::InfinitePast());
  EXPECT_EQ(registry.NextDeadline(), SteadyTime::InfiniteFuture());
  EXPECT_TRUE(registry.ListJobs(At(0)).empty());
  EXPECT_FALSE(registry.GetJob("x", At(0)).has_value());
  Effects effects;
  registry.OnDeadline(At(1), &effects);
  registry.OnStreamClosed("x", "n", 1, At(1), &effects);
  EXPECT_TRUE(effects.empty());
}

// Protocol 1: whoever has not joined is not heard.
TEST(RegistryTest, StrangersMessages_AreIgnored) {
  Registry registry(SteadyTime::InfinitePast());
  const Join a = Of("x", "a");
  Tell(&registry, a, a, At(0));
  Join other = a;
  other.set_incarnation(2);
  EXPECT_TRUE(Tell(&registry, other, NewGroupSucceeded(1), At(0)).empty());
  EXPECT_TRUE(Tell(&registry, Of("x", "b"), Leave{}, At(0)).empty());
  EXPECT_TRUE(Tell(&registry, Of("y", "a"), Heartbeat{}, At(0)).empty());
  EXPECT_EQ(registry.GetJob("x", At(0))->state, JobState::kRunning);
}

// Protocol 5: a server that ends by itself stays for those who may still come for the verdict.
TEST(RegistryTest, UnheardUntil_LostAfterItSucceeded_UntilItHasHeard) {
  Registry registry(SteadyTime::InfinitePast());
  const Join a = Of("x", "a", 2);
  Join b = Of("x", "b", 2);
  Tell(&registry, a, a, At(0));
  Tell(&registry, b, b, At(0));
  Tell(&registry, b, NewGroupSucceeded(1), At(1));
  Effects effects;
  registry.OnStreamClosed("x", "b", 1, At(2), &effects);
  registry.OnDeadline(At(3), &effects);
  EXPECT_EQ(registry.GetJob("x", At(3))->node_count, 1);
  EXPECT_EQ(registry.UnheardUntil(), SteadyTime::InfinitePast()) << "the job has not ended";
  Tell(&registry, a, NewGroupSucceeded(1), At(3));
  EXPECT_EQ(registry.UnheardUntil(), At(2) + absl::Milliseconds(3500));
  b.set_incarnation(2);
  b.set_phase(Join::PHASE_SUCCEEDED);
  *b.mutable_current() = TextProto<Assignment>(
      "round: 1 group_world_size: 2 world_size: 2 role_world_size: 2 master_addr: 'a' master_port: 1000");
  effects = Tell(&registry, b, b, At(4));
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_NE(ToldMessage<Finish>(effects[0]), nullptr);
  EXPECT_EQ(registry.UnheardUntil(), SteadyTime::InfinitePast());
}

TEST(RegistryTest, UnheardUntil_NodesThatLeftOrFailedAreNotExpected) {
  Registry registry(SteadyTime::InfinitePast());
  const Join a = Of("x", "a"), b = Of("y", "b");
  Tell(&registry, a, a, At(0));
  Tell(&registry, a, NewLeave("received SIGTERM", false), At(1));
  Tell(&registry, b, b, At(0));
  Effects effects;
  registry.OnStreamClosed("y", "b", 1, At(1), &effects);
  registry.OnDeadline(At(2), &effects);
  EXPECT_EQ(registry.live_jobs(), 0u);
  EXPECT_EQ(registry.UnheardUntil(), SteadyTime::InfinitePast());
}

// Protocol 4.7.
TEST(RegistryTest, ServerStopsForAWhile_NobodyIsLostBeforeItHasReadWhatArrived) {
  Registry registry(SteadyTime::InfinitePast());
  const Join a = Of("x", "a", 2), b = Of("x", "b", 2);
  Tell(&registry, a, a, At(0));
  Tell(&registry, b, b, At(0));
  Effects effects;
  registry.OnDeadline(At(10), &effects);
  for (const Effect& effect : effects) EXPECT_FALSE(std::holds_alternative<Close>(effect));
  Tell(&registry, a, Heartbeat{}, At(11));
  EXPECT_EQ(registry.NextDeadline(), At(17)) << "as long again as it was late";
  registry.OnDeadline(At(17), &effects);
  EXPECT_EQ(registry.GetJob("x", At(17))->node_count, 0) << "a was silent for six seconds since, b for 17";
}

// Protocol 4.5: who hears that a round was given out without it is not in touch any more.
TEST(RegistryTest, Welcome_NamesTheRoundThatTheNodeMissed) {
  Registry registry(SteadyTime::InfinitePast());
  const auto missed = [&](const Join& join) {
    const Effects effects = Tell(&registry, join, join, At(0));
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

// Protocol 5.
TEST(RegistryTest, IdUsedAgain_RoundsGoOnGrowing) {
  Registry registry(SteadyTime::InfinitePast());
  uint64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    const Join join = Of("x", absl::StrCat("n", i));
    const Effects effects = Tell(&registry, join, join, At(i));
    const Assignment* assignment = FindAssign(effects);
    ASSERT_NE(assignment, nullptr);
    EXPECT_GT(assignment->round(), last);
    EXPECT_EQ(assignment->restart_count(), 0);
    last = assignment->round();
    Tell(&registry, join, NewGroupSucceeded(last), At(i));
    EXPECT_EQ(registry.GetJob("x", At(i))->state, JobState::kFinished);
    EXPECT_EQ(registry.live_jobs(), 0u);
  }
}

TEST(RegistryTest, ForgottenId_StillGetsGreaterRounds) {
  Registry registry(SteadyTime::InfinitePast());
  uint64_t round = 0;
  for (int i = 0; i < 50; ++i) {
    const Join join = Of("x", absl::StrCat("n", i));
    round = FindAssign(Tell(&registry, join, join, At(0)))->round();
    Tell(&registry, join, NewGroupSucceeded(round), At(0));
  }
  for (size_t i = 0; i < EndedJobs::kMaxJobs; ++i) {
    const Join join = Of(absl::StrCat("job", i), "n");
    Tell(&registry, join, join, At(0));
    Tell(&registry, join, Leave{}, At(0));
  }
  EXPECT_FALSE(registry.GetJob("x", At(0)).has_value());
  EXPECT_EQ(registry.ListJobs(At(0)).size(), EndedJobs::kMaxJobs);
  const Join join = Of("x", "again");
  EXPECT_GT(FindAssign(Tell(&registry, join, join, At(0)))->round(), round);
}

TEST(RegistryTest, ManyJobs_EachHasItsDeadline) {
  Registry registry(SteadyTime::InfinitePast());
  constexpr int kJobs = 300;
  for (int i = 0; i < kJobs; ++i) {
    Join join = Of(absl::StrCat("job", i), "a", 2);
    join.mutable_origin()->set_in_process(true);
    *join.mutable_settings()->mutable_join_timeout() = FromDuration(absl::Seconds(10 + i));
    Tell(&registry, join, join, At(0));
  }
  EXPECT_EQ(registry.live_jobs(), kJobs);
  Effects effects;
  registry.OnDeadline(At(1), &effects);
  EXPECT_EQ(effects.size(), kJobs) << "each is told what it waits for";
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_EQ(registry.NextDeadline(), At(10 + i));
    effects.clear();
    registry.OnDeadline(At(10 + i), &effects);
    ASSERT_EQ(effects.size(), 2u);
    EXPECT_EQ(std::get<Report>(effects[0]).event.kind, Event::Kind::kJobFailed);
    EXPECT_EQ(std::get<rendezvous::Tell>(effects[1]).job_id, absl::StrCat("job", i));
    EXPECT_NE(ToldMessage<Finish>(effects[1]), nullptr);
  }
  EXPECT_EQ(registry.NextDeadline(), SteadyTime::InfiniteFuture());
}

TEST(RegistryTest, ListJobs_PagesThroughLiveAndEnded) {
  Registry registry(SteadyTime::InfinitePast());
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    const Join join = Of(id, "n");
    Tell(&registry, join, join, At(0));
    if (*id == 'b' || *id == 'e') Tell(&registry, join, NewGroupSucceeded(1), At(1));
  }
  std::string seen;
  std::string after;
  while (true) {
    const auto page = registry.ListJobs(At(3), after, 2);
    if (page.empty()) break;
    EXPECT_LE(page.size(), 2u);
    for (const JobView& view : page) {
      absl::StrAppend(&seen, view.job_id, IsEnd(view.state) ? "! " : " ");
      EXPECT_EQ(view.age, absl::Seconds(IsEnd(view.state) ? 1 : 3));
      EXPECT_EQ(view.began, At(0));
      EXPECT_EQ(view.ended, IsEnd(view.state) ? std::make_optional(At(1)) : std::nullopt);
      EXPECT_TRUE(view.nodes.empty());
    }
    after = page.back().job_id;
  }
  EXPECT_EQ(seen, "a b! c d e! ");
}

TEST(RegistryTest, GetJob_ShowsNodes) {
  Registry registry(SteadyTime::InfinitePast());
  Join join = Of("x", "a");
  join.set_slots(3);
  join.set_role("trainer");
  Tell(&registry, join, join, At(10));
  const Join spare = Of("x", "b");
  Tell(&registry, spare, spare, At(12));
  const auto view = registry.GetJob("x", At(15));
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->world_size, 3);
  EXPECT_EQ(view->round, 1u);
  ASSERT_EQ(view->nodes.size(), 2u);
  EXPECT_EQ(view->nodes[0].state(), v1::Node::STATE_RUNNING);
  EXPECT_EQ(view->nodes[0].role(), "trainer");
  EXPECT_EQ(ToDuration(view->nodes[0].last_heard()), absl::Seconds(5));
  EXPECT_EQ(view->nodes[1].state(), v1::Node::STATE_SPARE);
  EXPECT_EQ(view->nodes[1].group_rank(), -1);
}

// Protocol 6: all hosts of a job of moderate size are named, few of many.
TEST(RegistryTest, Waiting_NamesAllHostsOrFewOfMany) {
  for (const int nodes : {40, kMaxHostsTold, kMaxHostsTold + 1}) {
    Registry registry(SteadyTime::InfinitePast());
    for (int i = 0; i < nodes; ++i) {
      const Join join = Of("x", absl::StrCat("n", i), nodes + 1);
      Tell(&registry, join, join, At(0));
    }
    Effects effects;
    registry.OnDeadline(At(1), &effects);
    ASSERT_EQ(effects.size(), static_cast<size_t>(nodes));
    const auto* waiting = ToldMessage<Waiting>(effects[0]);
    ASSERT_NE(waiting, nullptr);
    EXPECT_EQ(waiting->nodes_joined(), nodes);
    EXPECT_EQ(waiting->hosts().size(), static_cast<size_t>(nodes > kMaxHostsTold ? kMaxHostsNamed : nodes));
  }
}

// What is said grows with the nodes, not with their square: nobody hears of the others one by one.
TEST(RegistryTest, ThousandJoins_AreAnsweredByTwoMessagesEach) {
  Registry registry(SteadyTime::InfinitePast());
  constexpr int kNodes = 1000;
  size_t said = 0;
  for (int i = 0; i < kNodes; ++i) {
    const Join join = Of("x", absl::StrCat("n", i), kNodes);
    for (const Effect& effect : Tell(&registry, join, join, At(0)))
      said += std::holds_alternative<Report>(effect) ? 0 : 1;
  }
  EXPECT_EQ(said, 2u * kNodes);
  EXPECT_EQ(registry.GetJob("x", At(0))->state, JobState::kRunning);
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
  Registry registry(SteadyTime::InfinitePast());
  const Join a = WithSecret(Of("x", "a"), 'a');
  Tell(&registry, a, a, At(0));
  for (Join stranger : {WithSecret(a, 'b'), WithSecret(a, '\0'), Of("x", "a")}) {
    stranger.set_incarnation(uint64_t{1} << 40);
    stranger.set_address("elsewhere");
    const Effects effects = Tell(&registry, stranger, stranger, At(1));
    ASSERT_EQ(effects.size(), 2);
    EXPECT_NE(FindRejected(effects), nullptr);
    EXPECT_EQ(std::get<Close>(effects[1]).incarnation, stranger.incarnation());
  }
  // Its stream stands, and it may come back.
  const Effects beat = Tell(&registry, a, Heartbeat{}, At(1));
  ASSERT_EQ(beat.size(), 1);
  EXPECT_NE(ToldMessage<HeartbeatAck>(beat[0]), nullptr);
  Join again = a;
  again.set_incarnation(2);
  EXPECT_EQ(FindRejected(Tell(&registry, again, again, At(1))), nullptr);
}

// What a server with records leaves behind.
SavedState Kept(const Effects& effects) {
  SavedState saved;
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect)) saved.jobs = {*persist->record};
  }
  return saved;
}

// Protocol 2.4, over a restart with records.
TEST(RegistryTest, Restored_StrangerComesFirstWithANodesId_IsRejected) {
  Registry before(At(0), true);
  const Join a = WithSecret(Of("x", "a"), 'a');
  const SavedState saved = Kept(Tell(&before, a, a, At(10)));
  ASSERT_EQ(saved.jobs.size(), 1u);
  Registry after(At(20), true);
  after.Restore(saved);
  for (Join stranger : {WithSecret(a, 'b'), Of("x", "a")}) {
    stranger.set_incarnation(uint64_t{1} << 40);
    EXPECT_NE(FindRejected(Tell(&after, stranger, stranger, At(20))), nullptr);
  }
  EXPECT_EQ(after.GetJob("x", At(20))->node_count, 0);
  Join again = a;
  again.set_incarnation(2);
  EXPECT_EQ(FindRejected(Tell(&after, again, again, At(21))), nullptr);
}

// A record names spares as well as lost nodes, so that more of them may be restored than are remembered otherwise.
TEST(RegistryTest, Restored_LostNodesDoNotGrowInNumber) {
  Registry before(At(0), true);
  Join a = Of("x", "a");
  a.mutable_settings()->set_max_restarts(1);
  SavedState saved = Kept(Tell(&before, a, a, At(10)));
  ASSERT_EQ(saved.jobs.size(), 1u);
  std::vector<std::string>& others = saved.jobs[0].others;
  for (size_t i = 0; i < 2 * DepartedNodes::kMaxLost; ++i) others.push_back(absl::StrCat("lost", i));
  Registry after(At(20), true);
  after.Restore(saved);
  a.set_incarnation(2);
  const Effects start = Tell(&after, a, a, At(20));
  ASSERT_NE(FindAssign(start), nullptr);
  for (int i = 0; i < 10; ++i) {
    Join spare = Of("x", absl::StrCat("spare", i));
    *spare.mutable_settings() = a.settings();
    Tell(&after, spare, spare, At(40 + i));
    Effects effects;
    after.OnStreamClosed("x", spare.node_id(), 1, At(40 + i), &effects);
    after.OnDeadline(At(41 + i), &effects);
  }
  const WorkerFailed failed = NewWorkerFailed(FindAssign(start)->round(), TextProto("rank: 0", NewFailure()));
  const SavedState kept = Kept(Tell(&after, a, failed, At(60)));
  ASSERT_EQ(kept.jobs.size(), 1u);
  EXPECT_EQ(kept.jobs[0].others.size(), others.size());
  EXPECT_EQ(kept.jobs[0].others.back(), "spare9");
}

// Protocol 4.5: any node may have workers of the last round of a job that ended, if its record does not name them.
TEST(RegistryTest, Restored_EndedJobWithoutItsNodes_NextRoundWaitsForAll) {
  Registry before(At(0), true);
  const Join a = Of("x", "a");
  Tell(&before, a, a, At(10));
  SavedState saved = Kept(Tell(&before, a, NewWorkerFailed(1, TextProto("host: 'a' rank: 0", NewFailure())), At(11)));
  ASSERT_EQ(saved.jobs.size(), 1u);
  ASSERT_TRUE(saved.jobs[0].verdict.has_value());
  saved.jobs[0] = Shortened(saved.jobs[0]);
  saved.longest_life = absl::Hours(1);
  Registry after(At(20), true);
  after.Restore(saved);
  const Join b = Of("x", "b");
  EXPECT_EQ(FindAssign(Tell(&after, b, b, At(20))), nullptr);
  Effects effects;
  after.OnDeadline(At(25), &effects);
  ASSERT_NE(FindAssign(effects), nullptr);
  EXPECT_GT(FindAssign(effects)->round(), 1u);
}

// A stranger must not lift the fence of a node by joining with its id.
TEST(RegistryTest, FencedNode_StrangerWithItsId_IsRejected) {
  Registry registry(SteadyTime::InfinitePast());
  const auto elastic = [](Join join) {
    join.mutable_settings()->set_min_nodes(1);
    return join;
  };
  const Join a = elastic(WithSecret(Of("x", "a", 2), 'a')), b = elastic(WithSecret(Of("x", "b", 2), 'b'));
  Tell(&registry, a, a, At(0));
  Tell(&registry, b, b, At(0));
  Tell(&registry, a, NewLeave("received SIGTERM", true), At(1));
  Join stranger = WithSecret(a, 'c');
  stranger.set_incarnation(9);
  EXPECT_NE(FindRejected(Tell(&registry, stranger, stranger, At(1))), nullptr);
  EXPECT_EQ(FindAssign(Tell(&registry, b, NewReady(1, 1001), At(1))), nullptr) << "a has workers still";
  Tell(&registry, b, NewLeave("", false), At(1));
  // The same after the end, when the id is used again.
  EXPECT_NE(FindRejected(Tell(&registry, stranger, stranger, At(2))), nullptr);
  EXPECT_EQ(registry.GetJob("x", At(2))->state, JobState::kFailed);
}

Join Reporting(Join join, uint64_t round) {
  Assignment& a = *join.mutable_current();
  a.set_round(round);
  a.set_role_world_size(1);
  a.set_group_world_size(1);
  a.set_world_size(1);
  a.set_master_addr("elsewhere");
  a.set_master_port(1);
  return join;
}

// Protocol 4.6: rounds that nobody can have given out.
TEST(RegistryTest, Join_ReportsImpossibleRound_IsRejectedAndChangesNothing) {
  Registry registry(SteadyTime::InfinitePast());
  const Join a = Of("x", "a", 2);
  const Join b = Of("x", "b", 2);
  Tell(&registry, a, a, At(0));
  const Effects start = Tell(&registry, b, b, At(0));
  ASSERT_NE(FindAssign(start), nullptr);
  const uint64_t round = FindAssign(start)->round();
  for (const uint64_t reported : {round + kMaxRoundsAhead + 1, uint64_t{1} << 48, uint64_t{1} << 62, UINT64_MAX}) {
    const Join stranger = Reporting(Of("x", "s", 2), reported);
    EXPECT_NE(FindRejected(Tell(&registry, stranger, stranger, At(1))), nullptr) << reported;
  }
  EXPECT_EQ(registry.GetJob("x", At(1))->node_count, 2);
}

// What was believed of a job without a past can always be reported by its true nodes to the next server.
TEST(RegistryTest, PoisonedRound_NextServerStillServesTheJob) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const auto settings = [](Join join) {
    join.mutable_settings()->set_min_nodes(1);
    return join;
  };
  Registry poisoned(SteadyTime::InfinitePast(), false, MaxReportedRound(now));
  const Join liar = settings(Reporting(Of("x", "s", 2), MaxReportedRound(now)));
  EXPECT_EQ(FindRejected(Tell(&poisoned, liar, liar, At(0))), nullptr);
  const Join worse = settings(Reporting(Of("y", "s", 2), MaxReportedRound(now) + 1));
  EXPECT_NE(FindRejected(Tell(&poisoned, worse, worse, At(0))), nullptr);
  Registry next(SteadyTime::InfinitePast(), false, MaxReportedRound(now + absl::Seconds(1)));
  const Join honest = settings(Reporting(Of("x", "a", 2), MaxReportedRound(now) + 1000));
  EXPECT_EQ(FindRejected(Tell(&next, honest, honest, At(0))), nullptr);
}

// What launchers of one address begin is bounded, by the number of jobs and by that of the nodes in all of them.
TEST(RegistryTest, TooManyNodesInTheJobsOfOnePeer_NewOnesAreRefusedOthersAreNot) {
  Registry registry(SteadyTime::InfinitePast());
  const auto from = [](const std::string& peer, const std::string& job, const std::string& node) {
    Join join = Of(job, node, kMaxNodes);
    join.mutable_origin()->set_peer(peer);
    return join;
  };
  const auto is_refused = [&](const Join& join) { return FindRejected(Tell(&registry, join, join, At(0))) != nullptr; };
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
  Tell(&registry, again, NewLeave("enough"), At(0));
  EXPECT_FALSE(is_refused(from("crowd", "job1", "one more")));
  EXPECT_TRUE(is_refused(from("crowd", "job1", "yet one more")));
}

}  // namespace
}  // namespace ddprun::rendezvous
