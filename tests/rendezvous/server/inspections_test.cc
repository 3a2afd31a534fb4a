// Stacks of ranks: InspectionsTest has the bookkeeping of calls, InspectTest calls over gRPC with launchers on real
// streams.
#include "rendezvous/server/inspections.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "proto/control.grpc.pb.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

// "rank 2 on node-b; node-a did not answer in time"
std::string Text(const v1::InspectResponse& response) {
  std::string text;
  for (const RankStacks& rank : response.ranks()) {
    absl::StrAppend(&text, "rank ", rank.rank(), " on ", rank.host(), ": ", rank.text(), "; ");
  }
  for (const v1::RankOutput& output : response.outputs()) {
    absl::StrAppend(&text, "rank ", output.rank(), " on ", output.host(), ": ", output.text(), " to ", output.end(),
                    output.gap() ? ", gap; " : "; ");
  }
  for (const v1::RankUsage& usage : response.usages()) {
    absl::StrAppend(&text, "rank ", usage.rank(), " on ", usage.host(), ": pid ", usage.pid(), "; ");
  }
  for (const auto& node : response.silent()) absl::StrAppend(&text, node.host(), " ", node.reason(), "; ");
  return text;
}

Inspection Answering(uint64_t id, uint64_t round, const std::vector<int32_t>& ranks, bool last = true,
                     const std::string& text = "stack") {
  Inspection inspection = NewInspection(id, round, last);
  for (const int32_t rank : ranks) {
    RankStacks* const stacks = inspection.add_ranks();
    stacks->set_rank(rank);
    stacks->set_text(text);
  }
  return inspection;
}

class InspectionsTest : public testing::Test {
 protected:
  // Begins a call to node a with ranks 0 and 1, and node b with rank 2, in round 7.
  uint64_t Begin(bool b_is_connected = true, Inspect::What what = Inspect::WHAT_STACKS) {
    const absl::StatusOr<uint64_t> id = inspections_.NewId("job");
    EXPECT_TRUE(id.ok()) << id.status();
    const InspectedNodes nodes{7, {{"a", 1, "node-a", true, {0, 1}}, {"b", 4, "node-b", b_is_connected, {2}}}};
    responses_.push_back(std::make_unique<v1::InspectResponse>());
    Run(inspections_.Begin(Question(*id, what), "job", nodes, now_, responses_.back().get(),
                           [this](const absl::Status& status) { ended_.push_back(status); }));
    return *id;
  }
  static Inspect Question(uint64_t id, Inspect::What what = Inspect::WHAT_STACKS) {
    Inspect question;
    question.set_id(id);
    question.set_what(what);
    return question;
  }
  static void Run(const Inspections::Answers& answers) {
    for (const Inspections::Answer& answer : answers) answer(absl::OkStatus());
  }
  void Answer(const NodeKey& from, Inspection inspection) {
    Run(inspections_.OnInspection(from, std::move(inspection)));
  }

  const NodeKey a_{"job", "a", 1}, b_{"job", "b", 4};
  const SteadyTime now_ = SteadyTime() + absl::Hours(1);
  Inspections inspections_;
  std::vector<std::unique_ptr<v1::InspectResponse>> responses_;
  std::vector<absl::Status> ended_;
};

TEST_F(InspectionsTest, OnInspection_AllNodes_EndsWithRanksInOrder) {
  const uint64_t id = Begin();
  Answer(b_, Answering(id, 7, {2}));
  Answer(a_, Answering(id, 7, {1}, /*last=*/false));
  EXPECT_TRUE(ended_.empty());
  Answer(a_, Answering(id, 7, {0}));
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_EQ(Text(*responses_[0]), "rank 0 on node-a: stack; rank 1 on node-a: stack; rank 2 on node-b: stack; ");
  EXPECT_EQ(inspections_.NextDeadline(), SteadyTime::InfiniteFuture());
  Answer(a_, Answering(id, 7, {0}));
  EXPECT_EQ(ended_.size(), 1u) << "late";
}

TEST_F(InspectionsTest, OnInspection_NotAsked_IsIgnored) {
  const uint64_t id = Begin();
  Answer(a_, Answering(id + 1, 7, {0}));
  Answer(a_, Answering(id, 6, {0}));
  Answer({"job", "a", 2}, Answering(id, 7, {0}));
  Answer({"other", "a", 1}, Answering(id, 7, {0}));
  Answer(b_, Answering(id, 7, {0, 1}, /*last=*/false));
  Answer(a_, Answering(id, 7, {0, 0, 2}, /*last=*/false));
  EXPECT_EQ(Text(*responses_[0]), "rank 0 on node-a: stack; ");
  EXPECT_TRUE(ended_.empty());
}

TEST_F(InspectionsTest, OnDeadline_NodesWithoutAnswer_AreListed) {
  const uint64_t id = Begin();
  Answer(a_, Answering(id, 7, {0}, /*last=*/false));
  EXPECT_EQ(inspections_.NextDeadline(), now_ + Inspections::kPatience);
  Run(inspections_.OnDeadline(now_ + Inspections::kPatience - absl::Nanoseconds(1)));
  EXPECT_TRUE(ended_.empty());
  Run(inspections_.OnDeadline(now_ + Inspections::kPatience));
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_EQ(Text(*responses_[0]),
            "rank 0 on node-a: stack; node-a did not answer in time; node-b did not answer in time; ");
}

TEST_F(InspectionsTest, Begin_NodeNotConnected_IsListed) {
  const uint64_t id = Begin(/*b_is_connected=*/false);
  Answer(a_, Answering(id, 7, {}));
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_EQ(Text(*responses_[0]), "node-b not connected; ");
}

TEST_F(InspectionsTest, OnGone_NodeOfSeveralCalls_EndsThose) {
  Begin(false);
  Begin();
  Run(inspections_.OnGone(a_));
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_EQ(Text(*responses_[1]), "node-a lost its connection; ");
  Run(inspections_.OnGone(b_));
  EXPECT_EQ(ended_.size(), 2u);
}

TEST_F(InspectionsTest, OnInspection_MoreThanFits_NodeIsListed) {
  InspectedNodes nodes{7, {{"a", 1, "node-a", true, {}}}};
  for (int32_t rank = 0; rank < 4096; ++rank) nodes.nodes[0].ranks.push_back(rank);
  v1::InspectResponse response;
  const uint64_t id = *inspections_.NewId("job");
  Run(inspections_.Begin(Question(id), "job", nodes, now_, &response,
                         [this](const absl::Status& status) { ended_.push_back(status); }));
  const std::string longest(kMaxStackBytes, 'x');
  for (int32_t rank = 0; rank < 4096 && ended_.empty(); ++rank) {
    Answer(a_, Answering(id, 7, {rank}, /*last=*/false, longest));
  }
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_LE(response.ByteSizeLong(), Inspections::kMaxBytes + 65536);
  ASSERT_EQ(response.silent_size(), 1);
  EXPECT_EQ(response.silent(0).reason(), "too much for one answer: name some ranks");
}

// A stream has several parts, and a rank two streams; their order is that of the launcher.
TEST_F(InspectionsTest, OnInspection_Outputs_ArePassedOnInOrder) {
  const uint64_t id = Begin(false, Inspect::WHAT_OUTPUT);
  Inspection answer = TextProto<Inspection>(R"(
      round: 7 outputs { rank: 1 text: "a\n\xff" end: 3 gap: true } outputs { rank: 0 text: "x" end: 9 host: "forged" }
      outputs { rank: 1 text: "b" end: 4 } outputs { rank: 2 text: "of another node" end: 1 })");
  answer.set_id(id);
  Answer(a_, answer);
  answer.clear_outputs();
  answer.set_last(true);
  Answer(a_, answer);
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_EQ(Text(*responses_[0]),
            "rank 0 on node-a: x to 9; rank 1 on node-a: a\n\xff to 3, gap; rank 1 on node-a: b to 4; "
            "node-b not connected; ");
}

TEST_F(InspectionsTest, OnInspection_Usages_OncePerRank) {
  const uint64_t id = Begin(false, Inspect::WHAT_USAGE);
  Inspection answer = TextProto<Inspection>(
      "round: 7 last: true usages { rank: 1 pid: 5 } usages { rank: 0 } usages { rank: 1 pid: 6 }");
  answer.set_id(id);
  Answer(a_, answer);
  EXPECT_EQ(Text(*responses_[0]), "rank 0 on node-a: pid 0; rank 1 on node-a: pid 5; node-b not connected; ");
}

TEST_F(InspectionsTest, OnInspection_StacksInsteadOfOutput_LauncherIsTooOld) {
  const uint64_t id = Begin(false, Inspect::WHAT_OUTPUT);
  Answer(a_, Answering(id, 7, {0, 1}));
  EXPECT_EQ(ended_.size(), 1u);
  EXPECT_EQ(Text(*responses_[0]), "node-b not connected; node-a its launcher is too old for this; ");
}

TEST_F(InspectionsTest, NewId_TooManyCalls_ResourceExhausted) {
  for (size_t i = 0; i < Inspections::kMaxCallsPerJob; ++i) Begin();
  EXPECT_EQ(inspections_.NewId("job").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(inspections_.NewId("other").ok());
  EXPECT_EQ(inspections_.TakeAll().size(), Inspections::kMaxCallsPerJob);
  EXPECT_TRUE(inspections_.NewId("job").ok());
}

// A call of a test, in a thread of its own. `request`: in protobuf's text format.
class StacksCall {
 public:
  StacksCall(int port, const std::string& request)
      : over_(std::async(std::launch::async, [this, port, request] {
          const auto stub = v1::Control::NewStub(
              grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
          grpc::ClientContext context;
          const auto parsed = TextProto<v1::InspectRequest>(request);
          return stub->Inspect(&context, parsed, &response_);
        })) {}

  grpc::Status Wait() { return over_.get(); }
  std::string Answer() {
    const grpc::Status status = Wait();
    return status.ok() ? Text(response_) : status.error_message();
  }

 private:
  v1::InspectResponse response_;
  std::future<grpc::Status> over_;
};

class InspectTest : public testing::Test {
 protected:
  InspectTest()
      : a_(server_.Grpc(), "job", "node-a", PatientSettings(2)),
        b_(server_.Grpc(), "job", "node-b", PatientSettings(2)) {
    BeginRound({&a_, &b_});
  }

  TestServer server_;
  TestLauncher a_, b_;
};

TEST_F(InspectTest, AllRanks_AreAskedOnceAndCollected) {
  StacksCall call(server_.port(), "job_id: 'job' inspect { native: true }");
  for (TestLauncher* launcher : {&a_, &b_}) {
    const Inspect asked = launcher->Await<Inspect>();
    EXPECT_TRUE(asked.native());
    EXPECT_EQ(asked.round(), launcher->join().current().round());
    launcher->client().Send(Answering(asked.id(), asked.round(), {asked.ranks(0)}, /*last=*/false));
    launcher->client().Send(Answering(asked.id(), asked.round(), {asked.ranks(1)}));
  }
  const std::string answer = call.Answer();
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(answer, HasSubstr(absl::StrCat("rank ", rank, " on node-")));
  ExpectSuccess({&a_, &b_});
}

TEST_F(InspectTest, LauncherDisconnects_IsListed) {
  StacksCall call(server_.port(), "job_id: 'job' inspect { ranks: 0 ranks: 2 }");
  const Inspect asked = a_.Await<Inspect>();
  EXPECT_EQ(asked.ranks_size(), 1);
  a_.client().Send(Answering(asked.id(), asked.round(), {asked.ranks(0)}));
  b_.Await<Inspect>();
  b_.Disappear();
  const std::string answer = call.Answer();
  EXPECT_THAT(answer, HasSubstr(absl::StrCat("rank ", asked.ranks(0), " on node-a: stack; ")));
  EXPECT_THAT(answer, HasSubstr("node-b lost its connection; "));
  StacksCall again(server_.port(), absl::StrCat("job_id: 'job' inspect { ranks: ", 2 - asked.ranks(0), " }"));
  EXPECT_EQ(again.Answer(), "node-b not connected; ");
}

TEST_F(InspectTest, ServerStops_Unavailable) {
  StacksCall call(server_.port(), "job_id: 'job' inspect { ranks: 0 }");
  (a_.join().current().base_rank() == 0 ? a_ : b_).Await<Inspect>();
  server_.Stop();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(InspectTest, NoSuchJobRankOrRound_IsRefused) {
  EXPECT_EQ(StacksCall(server_.port(), "job_id: 'other'").Wait().error_code(), grpc::StatusCode::NOT_FOUND);
  const grpc::Status rank = StacksCall(server_.port(), "job_id: 'job' inspect { ranks: [1, 4] }").Wait();
  EXPECT_EQ(rank.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(rank.error_message(), "job job has no rank 4: its ranks are 0 to 3");
  EXPECT_EQ(StacksCall(server_.port(), "job_id: 'job' inspect { ranks: -1 }").Wait().error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  a_.FailWorker(1);
  a_.Await<StopRound>();
  EXPECT_EQ(StacksCall(server_.port(), "job_id: 'job'").Wait().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace ddprun::rendezvous
