#include "launcher/hang/worker_probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"

namespace ddprun::launcher {
namespace {

using hang::v1::Collective;
using hang::v1::Group;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

std::string Status(int64_t id, int64_t enqueued, int64_t completed) {
  return absl::StrCat(R"({"pg_status":{")", id, R"(":{"last_completed_collective":")", completed,
                      R"(","last_enqueued_collective":")", enqueued, R"(","last_started_collective":"-1"}})");
}

struct Entry {
  int64_t number;
  std::string name = "gloo:all_reduce";
  std::string group = R"(["0","default_pg"])";
  int64_t id = 0;
  bool retired = true;
  bool p2p = false;
  std::string state = "scheduled";
  int64_t age_s = 0;
  int64_t message = 0;
};

std::string Json(const Entry& entry) {
  return absl::StrCat(R"({"collective_seq_id":)", entry.number, R"(,"input_dtypes":["Float","Long"],)",
                      R"("input_sizes":[[10,4],[]],"p2p_seq_id":)", entry.message, R"(,"is_p2p":)",
                      entry.p2p ? "true" : "false", R"(,"pg_id":)", entry.id, R"(,"process_group":)", entry.group,
                      R"(,"profiling_name":")", entry.name, R"(","retired":)", entry.retired ? "true" : "false",
                      R"(,"state":")", entry.state, R"(","time_created_ns":)",
                      absl::ToUnixNanos(kNow - absl::Seconds(entry.age_s)), R"(,"timeout_ms":1800000})");
}

std::string Recorder(const std::string& status, const std::vector<Entry>& entries) {
  std::string list;
  for (const Entry& entry : entries) absl::StrAppend(&list, list.empty() ? "" : ",", Json(entry));
  return absl::StrCat(status, R"(,"entries":[)", list, "]}\n");
}

TEST(ParseCountersTest, Answer_CollectiveEnteredStartedOrCompleted_Changes) {
  const std::string before = ParseCounters(Status(0, 301, 300) + "}\n").text;
  EXPECT_NE(before, "");
  EXPECT_EQ(ParseCounters(Status(0, 301, 300) + ",\"version\":\"2.11\"}\n").text, before);
  EXPECT_NE(ParseCounters(Status(0, 302, 300) + "}\n").text, before);
  EXPECT_NE(ParseCounters(Status(0, 301, 301) + "}\n").text, before);
  EXPECT_NE(ParseCounters(absl::StrReplaceAll(Status(0, 301, 300), {{"\"-1\"", "\"5\""}}) + "}\n").text, before);
}

TEST(ParseCountersTest, Answer_NoGroups_IsEmpty) {
  EXPECT_EQ(ParseCounters("").text, "");
  EXPECT_EQ(ParseCounters("{\"pg_status\":{}}\n{\"pg_status\":{}}\n").text, "");
}

TEST(ParseCountersTest, Answer_CollectiveHasNotCompleted_Waits) {
  EXPECT_FALSE(ParseCounters("").waits);
  EXPECT_FALSE(ParseCounters(Status(0, 301, 301) + "}\n").waits);
  EXPECT_TRUE(ParseCounters(Status(0, 301, 300) + "}\n").waits);
  EXPECT_TRUE(ParseCounters(Status(0, 7, 7) + "}\n" + Status(0, 301, 300) + "}\n").waits) << "of another backend";
}

TEST(ParseCountersTest, Answer_SeveralRecorders_EnteredOnesAreAdded) {
  EXPECT_EQ(ParseCounters(Status(0, 301, 300) + "}\n").entered, 301);
  EXPECT_EQ(ParseCounters(Status(0, 301, 300) + "}\n" + Status(0, 4, 4) + "}\n").entered, 305);
}

TEST(ParseCollectivesTest, Entry_OfGloo_IsPendingUntilItIsRetired) {
  const std::vector<Group> groups = ParseCollectives(
      Recorder(Status(0, 2, 1), {{.number = 1, .age_s = 60}, {.number = 2, .retired = false, .age_s = 10}}), kNow);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].name(), "default_pg");
  EXPECT_EQ(groups[0].entered(), 2);
  ASSERT_EQ(groups[0].collectives_size(), 2);
  EXPECT_FALSE(groups[0].collectives(0).pending());
  const Collective& last = groups[0].collectives(1);
  EXPECT_TRUE(last.pending());
  EXPECT_EQ(last.number(), 2);
  EXPECT_EQ(last.name(), "all_reduce");
  EXPECT_THAT(last.tensors(), ElementsAre("Float[10, 4]", "Long[]"));
  EXPECT_EQ(last.age_ms(), 10'000);
  EXPECT_EQ(last.timeout_ms(), 1'800'000);
  EXPECT_EQ(last.entered_us(), absl::ToUnixMicros(kNow) - 10'000'000);
  EXPECT_EQ(last.ended_us(), 0);
}

TEST(ParseCollectivesTest, Entry_CompletedOrNotEnqueued_IsNotPending) {
  const std::vector<Group> groups =
      ParseCollectives(Recorder(Status(0, 5, 3), {{.number = 3, .retired = false},
                                                  {.number = 4, .retired = false, .state = "completed"},
                                                  {.number = 5, .retired = false, .state = "started"},
                                                  {.number = 6, .retired = false}}),  // captured in a CUDA graph
                       kNow);
  ASSERT_THAT(groups, SizeIs(1));
  std::vector<int64_t> pending;
  for (const Collective& collective : groups[0].collectives()) {
    if (collective.pending()) pending.push_back(collective.number());
  }
  EXPECT_THAT(pending, ElementsAre(5));
}

TEST(ParseCollectivesTest, Entries_PointToPointOrOfOneNumber_CountOnceOrNot) {
  const std::vector<Group> groups = ParseCollectives(
      Recorder(Status(0, 2, 2),
               {{.number = 1, .name = "nccl:first"}, {.number = 1, .name = "nccl:second"}, {.number = 9, .p2p = true}}),
      kNow);
  ASSERT_THAT(groups, SizeIs(1));
  ASSERT_EQ(groups[0].collectives_size(), 1);
  EXPECT_EQ(groups[0].collectives(0).name(), "first");
  EXPECT_EQ(groups[0].entered(), 1);
}

TEST(ParseCollectivesTest, Messages_OfNccl_ArePendingUntilTheyOrTheirBatchEnd) {
  const std::vector<Group> groups = ParseCollectives(
      // The counters are those of messages, too.
      Recorder(Status(0, 9, 9),
               {{.number = 1, .name = "nccl:all_reduce", .age_s = 9, .message = 1},
                {.number = 1, .name = "nccl:send 1->0", .p2p = true, .age_s = 8, .message = 2},
                {.number = 1, .name = "nccl:send 1->2", .retired = false, .p2p = true, .age_s = 7, .message = 3},
                {.number = 1, .name = "nccl:recv 1<-2", .retired = false, .p2p = true, .age_s = 6, .message = 3},
                {.number = 1, .name = "nccl:coalesced", .state = "completed", .age_s = 5, .message = 3},
                {.number = 1, .name = "nccl:send 1->2", .retired = false, .p2p = true, .age_s = 4, .message = 4},
                {.number = 1, .name = "nccl:recv 1<-2", .retired = false, .p2p = true, .age_s = 3, .message = 4},
                {.number = 1, .name = "nccl:coalesced", .retired = false, .age_s = 2, .message = 4},
                {.number = 2, .name = "nccl:all_reduce", .retired = false, .age_s = 1, .message = 4}}),
      kNow);
  ASSERT_THAT(groups, SizeIs(1));
  ASSERT_EQ(groups[0].collectives_size(), 2);
  EXPECT_FALSE(groups[0].collectives(0).pending());
  EXPECT_TRUE(groups[0].collectives(1).pending());
  ASSERT_EQ(groups[0].point_to_point_size(), 2);
  const Collective& send = groups[0].point_to_point(0);
  const Collective& receive = groups[0].point_to_point(1);
  EXPECT_EQ(send.name(), "send 1->2");
  EXPECT_EQ(receive.name(), "recv 1<-2");
  EXPECT_EQ(receive.number(), 4);
  EXPECT_TRUE(receive.pending());
  EXPECT_EQ(send.order(), receive.order());
  EXPECT_GT(send.order(), 0);
  EXPECT_GT(groups[0].collectives(1).order(), send.order());
}

// nccl2 of PyTorch 2.15: the counters begin at 0.
TEST(ParseCollectivesTest, Entry_OfHooks_IsPendingUntilItHasCompleted) {
  const std::vector<Group> groups = ParseCollectives(
      Recorder(Status(0, 4, 3), {{.number = 4, .name = "nccl2:all_reduce", .state = "completed", .age_s = 1},
                                 {.number = 5, .name = "nccl2:broadcast", .retired = false}}),
      kNow);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].entered(), 5);
  EXPECT_FALSE(groups[0].collectives(0).pending());
  EXPECT_TRUE(groups[0].collectives(1).pending());
  EXPECT_EQ(groups[0].collectives(1).name(), "broadcast");
  EXPECT_GT(groups[0].collectives(1).order(), groups[0].collectives(0).order());
}

TEST(ParseCollectivesTest, Messages_OfGloo_AreCountedAndNotRecorded) {
  const std::vector<Group> groups =
      ParseCollectives(Recorder(Status(0, 4, 3), {{.number = 2}, {.number = 3, .retired = false}}), kNow);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_FALSE(groups[0].collectives(0).pending());
  EXPECT_TRUE(groups[0].collectives(1).pending());
}

TEST(ParseCollectivesTest, Group_WithMessagesOnly_IsKnown) {
  const std::vector<Group> groups =
      ParseCollectives(Recorder(Status(0, 1, -1),
                                {{.number = 0, .name = "nccl:recv 1<-0", .retired = false, .p2p = true, .message = 1}}),
                       kNow);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].entered(), 0);
  EXPECT_EQ(groups[0].collectives_size(), 0);
  EXPECT_EQ(groups[0].point_to_point_size(), 1);
}

TEST(ParseCollectivesTest, Group_MadeAgain_HasTheNewCollectivesOnly) {
  const std::vector<Group> groups =
      ParseCollectives(Recorder(Status(4, 2, 1), {{.number = 70},
                                                  {.number = 3, .group = R"(["7","mesh_dp"])", .id = 2},
                                                  {.number = 1, .id = 4},
                                                  {.number = 2, .id = 4, .retired = false}}),
                       kNow);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_EQ(groups[0].name(), "7");
  EXPECT_EQ(groups[1].name(), "default_pg");
  EXPECT_EQ(groups[1].entered(), 2);
  EXPECT_EQ(groups[1].collectives_size(), 2);
}

TEST(ParseCollectivesTest, Group_OfGlooAndNccl_IsTwoGroups) {
  const std::string gloo = Recorder(Status(0, 3, 3), {{.number = 3}, {.number = 4, .group = R"(["5","cpu"])"}});
  const std::string nccl = Recorder(R"({"pg_config":{"0":{"name":"0"}})", {{.number = 8, .name = "nccl:broadcast"}});
  const std::vector<Group> groups = ParseCollectives(gloo + nccl, kNow);
  std::vector<std::string> names;
  for (const Group& group : groups) names.push_back(absl::StrCat(group.name(), " ", group.entered()));
  EXPECT_THAT(names, ElementsAre("5 4", "default_pg (gloo) 3", "default_pg 8"));
}

TEST(ParseCollectivesTest, Group_OfNccl_HasItsMembers) {
  const std::string config = R"({"pg_config":{"0":{"name":"0","ranks":"[0, 1]"},"5":{"name":"5","ranks":"[1, 3]"},)"
                             R"("6":{"name":"6","ranks":"[x, 3]"}})";
  const std::vector<Group> groups = ParseCollectives(
      Recorder(config,
               {{.number = 8}, {.number = 4, .group = R"(["5","tp"])"}, {.number = 4, .group = R"(["6","pp"])"}}),
      kNow);
  ASSERT_THAT(groups, SizeIs(3));
  EXPECT_THAT(groups[0].members(), ElementsAre(1, 3));
  EXPECT_THAT(groups[1].members(), ElementsAre());
  EXPECT_THAT(groups[2].members(), ElementsAre()) << "the default group's are known";
}

TEST(ParseCollectivesTest, Group_LongHistory_KeepsTheNewest) {
  std::vector<Entry> entries;
  for (int64_t number = 1; number <= 2000; ++number) entries.push_back({.number = number});
  const std::vector<Group> groups = ParseCollectives(Recorder(Status(0, 2000, 2000), entries), kNow);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].collectives_size(), kMostCollectives);
  EXPECT_EQ(groups[0].collectives(0).number(), 2001 - kMostCollectives);
  EXPECT_EQ(groups[0].entered(), 2000);
}

TEST(ParseTest, HostileAnswers_AreSurvived) {
  for (const std::string& text :
       {std::string("[]"), std::string("{"), std::string("\0\xff\n{}", 5),
        std::string(R"({"entries":7,"pg_status":[]})"), std::string(R"({"entries":[1,[],{}],"pg_status":{"0":3}})"),
        std::string(R"({"entries":[{"process_group":["a"],"collective_seq_id":1}]})"),
        std::string(R"({"entries":[{"process_group":[1,2],"collective_seq_id":"x","pg_id":{}}]})"),
        std::string(1 << 20, '['), absl::StrCat(R"({"entries":)", std::string(1 << 20, '['))}) {
    EXPECT_THAT(ParseCollectives(text, kNow), IsEmpty()) << text.substr(0, 80);
    ParseCounters(text);
  }
  // Parts and changes of an answer.
  const std::string answer = Recorder(Status(0, 2, 1), {{.number = 1}, {.number = 2, .retired = false}});
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string text = answer.substr(0, i % 2 == 0 ? answer.size() : random() % answer.size());
    for (int change = 0; change < 3 && !text.empty(); ++change)
      text[random() % text.size()] = static_cast<char>(random());
    for (const Group& group : ParseCollectives(text, kNow)) {
      Group copy;
      EXPECT_TRUE(copy.ParseFromString(group.SerializeAsString())) << "text that is not UTF-8";
    }
    hang::v1::Process process;
    ParsePythonStacks(text, &process);
  }
}

constexpr char kStacks[] = R"(Current thread 0x00007f67d5a266c0 (most recent call first):
  File "/job/train.py", line 8 in hold
  File "/lib/threading.py", line 982 in run

Thread 0x00007f6891e45240 (most recent call first):
  File "/job/a "quoted", line 3 name.py", line 327 in wait
  File "/job/train.py", line 9 in <module>
)";

TEST(ParsePythonStacksTest, LastThread_IsTheMainOne) {
  hang::v1::Process process;
  ParsePythonStacks(kStacks, &process);
  ASSERT_EQ(process.frames_size(), 2);
  EXPECT_EQ(process.frames(0).file(), "/job/a \"quoted\", line 3 name.py");
  EXPECT_EQ(process.frames(0).line(), 327);
  EXPECT_EQ(process.frames(1).function(), "<module>");
  ASSERT_EQ(process.threads_size(), 1);
  EXPECT_TRUE(process.threads(0).holds_lock());
  EXPECT_EQ(process.threads(0).frames(0).function(), "hold");
}

TEST(ParsePythonStacksTest, ListOfThreads_Cut_HasNoMainThread) {
  hang::v1::Process process;
  ParsePythonStacks(absl::StrCat(kStacks, "...\n"), &process);
  EXPECT_THAT(process.frames(), IsEmpty());
  EXPECT_EQ(process.threads_size(), 2);
}

TEST(ParseMainStackTest, BothStacks_AreRead) {
  hang::v1::Process process;
  std::string text =
      "main thread: S (sleeping)\nPython stack (most recent call first):\n  File \"a.py\", line 2 in f\n"
      "Native stack (most recent call first):\n";
  for (int i = 0; i < 20; ++i) absl::StrAppend(&text, "  #", i, " 0x1 read (libc.so.6+0x1)\n");
  ParseMainStack(text, &process);
  ASSERT_EQ(process.frames_size(), 1);
  EXPECT_EQ(process.frames(0).function(), "f");
  ASSERT_EQ(process.native_size(), 12);
  EXPECT_EQ(process.native(0), "#0 0x1 read (libc.so.6+0x1)");
}

// The process's end of the connection is the test's.
class WorkerProbeTest : public ::testing::Test {
 protected:
  WorkerProbeTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    process_.reset(ends[1]);
    probe_ = std::make_unique<WorkerProbe>(loop_.get(), getpid(), UniqueFd(ends[0]), [this] { closed_ = true; });
  }

  void Turn() {
    for (int i = 0; i < 3; ++i) {
      loop_->Post([this] { loop_->Post([this] { loop_->Quit(); }); });
      loop_->Run();
    }
  }
  void AwaitAnswers(size_t count) {
    while (answers_.size() < count) Turn();
  }
  void Ask(WorkerProbe::Question question) {
    probe_->Ask(question, [this](std::optional<std::string> answer) {
      answers_.push_back(std::move(answer).value_or("none"));
      loop_->Quit();
    });
  }
  std::string Asked() {
    char bytes[16];
    const ssize_t got = recv(process_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return std::string(bytes, std::max<ssize_t>(got, 0));
  }
  void Answer(const std::string& text, size_t size) {
    const std::array<char, 4> length = {static_cast<char>(size), static_cast<char>(size >> 8),
                                        static_cast<char>(size >> 16), static_cast<char>(size >> 24)};
    const std::string bytes = std::string(length.data(), length.size()) + text;
    EXPECT_EQ(send(process_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void Answer(const std::string& text) { Answer(text, text.size()); }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  UniqueFd process_;
  std::unique_ptr<WorkerProbe> probe_;
  std::vector<std::string> answers_;
  bool closed_ = false;
};

TEST_F(WorkerProbeTest, Ask_SeveralQuestions_AreSentOneAtATime) {
  Ask(WorkerProbe::Question::kCollectives);
  Ask(WorkerProbe::Question::kStacks);
  EXPECT_EQ(Asked(), "e");
  Answer("first");
  AwaitAnswers(1);
  EXPECT_EQ(Asked(), "t");
  Answer("");
  AwaitAnswers(2);
  EXPECT_THAT(answers_, ElementsAre("first", ""));
  EXPECT_EQ(Asked(), "");
}

TEST_F(WorkerProbeTest, Answer_InParts_IsPutTogether) {
  Ask(WorkerProbe::Question::kCounters);
  const std::string bytes("\3\0\0\0abc", 7);
  for (const char byte : bytes) {
    EXPECT_THAT(answers_, IsEmpty());
    EXPECT_EQ(send(process_.get(), &byte, 1, 0), 1);
    Turn();
  }
  AwaitAnswers(1);
  EXPECT_THAT(answers_, ElementsAre("abc"));
}

TEST_F(WorkerProbeTest, Answer_TooLate_IsNotTakenForTheNextOne) {
  Ask(WorkerProbe::Question::kCounters);
  loop_->Run();  // until the patience is over
  EXPECT_THAT(answers_, ElementsAre("none"));
  Ask(WorkerProbe::Question::kCounters);
  EXPECT_EQ(Asked(), "c") << "the second one is not sent yet";
  Answer("late");
  std::string asked;
  while ((asked = Asked()).empty()) Turn();
  EXPECT_EQ(asked, "c");
  Answer("second");
  AwaitAnswers(2);
  EXPECT_THAT(answers_, ElementsAre("none", "second"));
}

TEST_F(WorkerProbeTest, Connection_Ended_LeavesNoQuestionUnanswered) {
  Ask(WorkerProbe::Question::kCounters);
  Ask(WorkerProbe::Question::kStacks);
  process_.reset();
  while (!closed_) Turn();
  Ask(WorkerProbe::Question::kCounters);
  AwaitAnswers(3);
  EXPECT_THAT(answers_, ElementsAre("none", "none", "none"));
}

TEST_F(WorkerProbeTest, Answer_TooLongOrUnasked_EndsTheConnection) {
  Ask(WorkerProbe::Question::kCounters);
  Answer("", WorkerProbe::kMaxAnswer + 1);
  while (!closed_) Turn();
  EXPECT_THAT(answers_, ElementsAre("none"));
}

TEST_F(WorkerProbeTest, Bytes_WithoutQuestion_EndTheConnection) {
  Answer("unasked");
  while (!closed_) Turn();
  EXPECT_THAT(answers_, IsEmpty());
}

TEST_F(WorkerProbeTest, OnClosed_DestroysTheProbe_KeepsWhatItHasCaptured) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::unique_ptr<WorkerProbe> other;
  std::string text(1000, 'x'), seen;
  other = std::make_unique<WorkerProbe>(loop_.get(), getpid(), UniqueFd(ends[0]), [this, &other, &seen, text] {
    other = nullptr;
    seen = text;
    loop_->Quit();
  });
  close(ends[1]);
  loop_->Run();
  EXPECT_EQ(seen, text);
}

TEST_F(WorkerProbeTest, Destructor_WithOpenQuestions_CallsNothing) {
  Ask(WorkerProbe::Question::kCounters);
  Answer("answer");
  probe_ = nullptr;
  Turn();
  EXPECT_THAT(answers_, IsEmpty());
  EXPECT_FALSE(closed_);
}

}  // namespace
}  // namespace ddprun::launcher
