#include "launcher/store/key_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/store/request_parser.h"
#include "tests/launcher/store/request_bytes.h"

namespace ddprun::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr char kNoReply[] = "";
const std::string kReleased = Number(kStopWaiting);
const std::string kCanceled = Number(kWaitCanceled);

class KeyValueTest : public testing::Test {
 protected:
  using Replies = std::multimap<ClientId, std::string>;

  // Returns the replies to all clients, in order for each.
  Replies Do(ClientId client, const std::string& bytes) {
    std::vector<Reply> replies;
    status_ = store_.Apply(client, Parse(bytes), max_reply_bytes_, &replies);
    Replies by_client;
    for (Reply& reply : replies) by_client.emplace(reply.client, std::move(reply.bytes));
    return by_client;
  }
  // Returns the replies to client 1 for some requests. Fails if other clients got one.
  std::string Ask(const std::string& bytes) {
    RequestParser parser;
    parser.Append(bytes);
    std::vector<Reply> replies;
    for (Request request; parser.Next(&request) == RequestParser::Outcome::kRequest;) {
      status_ = store_.Apply(1, request, max_reply_bytes_, &replies);
      EXPECT_TRUE(status_.ok()) << status_;
    }
    std::string all;
    for (const Reply& reply : replies) {
      EXPECT_EQ(reply.client, 1u);
      all += reply.bytes;
    }
    return all;
  }
  absl::StatusCode CodeOf(const std::string& bytes) {
    EXPECT_THAT(Do(1, bytes), IsEmpty());
    return status_.code();
  }
  static Request Parse(const std::string& bytes) {
    RequestParser parser;
    parser.Append(bytes);
    Request request;
    EXPECT_EQ(parser.Next(&request), RequestParser::Outcome::kRequest);
    return request;
  }

  KeyValue store_{1 << 20};
  size_t max_reply_bytes_ = 1 << 20;
  absl::Status status_;
};

TEST_F(KeyValueTest, SetAppendGet_AMissingValueIsEmpty) {
  EXPECT_EQ(Ask(Get("/a")), Text(""));
  EXPECT_EQ(Ask(Set("/a", "1")), kNoReply);
  EXPECT_EQ(Ask(Get("/a")), Text("1"));
  EXPECT_EQ(Ask(Append("/a", "yz")), kNoReply);
  EXPECT_EQ(Ask(Get("/a")), Text("1yz"));
  EXPECT_EQ(Ask(Append("/b", "x") + Get("/b")), Text("x"));
  EXPECT_EQ(Ask(Set("/a", "") + Get("/a")), Text(""));
}

TEST_F(KeyValueTest, Add_IsKeptAsDecimalText) {
  for (const auto& [delta, sum] : {std::pair(0, 0), std::pair(-7, -7), std::pair(10, 3)}) {
    EXPECT_EQ(Ask(Add("/n", delta) + Get("/n")), Number<int64_t>(sum) + Text(absl::StrCat(sum)));
  }
}

TEST_F(KeyValueTest, Add_ReadsValuesAsStrtollAndWraps) {
  const std::vector<std::pair<std::string, int64_t>> values = {
      {"12abc", 12}, {" \t\n7", 7}, {"+3", 3}, {"-5", -5}, {"0x10", 0}, {"9223372036854775807", INT64_MAX}};
  for (const auto& [text, number] : values) {
    EXPECT_EQ(Ask(Set("/n", text) + Add("/n", 0)), Number<int64_t>(number)) << text;
  }
  EXPECT_EQ(Ask(Add("/n", 1)), Number<int64_t>(INT64_MIN));
}

TEST_F(KeyValueTest, Add_NoNumber_ClosesAndKeepsTheValue) {
  for (const std::string text : {"", "x", "+", "-", "+-5", "--5", " ", "9223372036854775808"}) {
    Ask(Set("/n", text));
    EXPECT_EQ(CodeOf(Add("/n", 1)), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_EQ(CodeOf(Barrier("/n", 1)), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_EQ(Ask(Get("/n")), Text(text));
  }
}

TEST_F(KeyValueTest, CompareSet_AllFourCases) {
  EXPECT_EQ(Ask(CompareSet("/a", "x", "y")), Text("x"));  // missing, expected a value: nothing stored
  EXPECT_EQ(Ask(Check({"/a"})), Number(kCheckNotReady));
  EXPECT_EQ(Ask(CompareSet("/a", "", "y")), Text("y"));   // missing, expected nothing: stored
  EXPECT_EQ(Ask(CompareSet("/a", "z", "w")), Text("y"));  // different value: nothing stored
  EXPECT_EQ(Ask(CompareSet("/a", "y", "w")), Text("w"));  // same value: stored
  EXPECT_EQ(Ask(Get("/a")), Text("w"));
}

TEST_F(KeyValueTest, CompareSet_StoresNothing_WakesNoClient) {
  Do(2, Wait({"/a"}));
  EXPECT_THAT(Do(1, CompareSet("/a", "x", "y")), ElementsAre(Pair(1, Text("x"))));
  EXPECT_THAT(Do(1, CompareSet("/a", "", "y")), UnorderedElementsAre(Pair(1, Text("y")), Pair(2, kReleased)));
}

TEST_F(KeyValueTest, Check_AllSomeNone) {
  EXPECT_EQ(Ask(Set("/a", "") + Check({}) + Check({"/a"}) + Check({"/a", "/b"})),
            Number(kCheckReady) + Number(kCheckReady) + Number(kCheckNotReady));
}

TEST_F(KeyValueTest, NumKeysListKeysDelete_CountKeysButNotQueues) {
  EXPECT_EQ(Ask(ListKeys()), Number<int64_t>(0));
  Ask(Set("/a", "1") + QueuePush("/q", "v"));
  Ask(Add("init/", 1));
  EXPECT_EQ(Ask(NumKeys()), Number<int64_t>(2));
  EXPECT_THAT(Ask(ListKeys()), testing::AnyOf(Number<int64_t>(2) + Text("/a") + Text("init/"),
                                              Number<int64_t>(2) + Text("init/") + Text("/a")));
  EXPECT_EQ(Ask(DeleteKey("/q") + DeleteKey("init/") + DeleteKey("init/")),
            Number<int64_t>(0) + Number<int64_t>(1) + Number<int64_t>(0));
  EXPECT_EQ(Ask(ListKeys()), Number<int64_t>(1) + Text("/a"));
}

TEST_F(KeyValueTest, MultiSetMultiGet_InOrderMissingEmpty) {
  EXPECT_EQ(Ask(MultiSet({{"/a", "1"}, {"/b", "2"}, {"/a", "3"}})), kNoReply);
  EXPECT_EQ(Ask(MultiGet({"/b", "/none", "/a"})), Text("2") + Text("") + Text("3"));
  EXPECT_EQ(Ask(MultiGet({})), kNoReply);
}

TEST_F(KeyValueTest, Queue_IsFifoAndApartFromTheKey) {
  EXPECT_EQ(Ask(Set("/q", "key") + QueueLength("/q") + QueuePop("/q")), Number<int64_t>(0) + Number<int64_t>(0));
  EXPECT_EQ(Ask(QueuePush("/q", "1") + QueuePush("/q", "2")), kNoReply);
  EXPECT_EQ(Ask(QueueLength("/q")), Number<int64_t>(2));
  EXPECT_EQ(Ask(QueuePop("/q")), Number<int64_t>(2) + Text("1"));
  EXPECT_EQ(Ask(QueuePop("/q")), Number<int64_t>(1) + Text("2"));
  EXPECT_EQ(Ask(QueuePop("/q") + Get("/q")), Number<int64_t>(0) + Text("key"));
}

TEST_F(KeyValueTest, Wait_NothingMissing_AnsweredAtOnce) {
  EXPECT_EQ(Ask(Wait({})), kReleased);
  Ask(Set("/a", "1"));
  Ask(QueuePush("/q", "1"));
  EXPECT_EQ(Ask(Wait({"/a", "/q", "/a"})), kReleased);
}

TEST_F(KeyValueTest, Wait_EveryWritingRequest_Releases) {
  for (const std::string& write : {Set("/a", ""), Append("/a", ""), Add("/a", 0), MultiSet({{"/a", ""}}),
                                   CompareSet("/a", "", ""), Barrier("/a", 1), QueuePush("/a", "")}) {
    store_ = KeyValue(1 << 20);
    EXPECT_THAT(Do(2, Wait({"/a"})), IsEmpty());
    EXPECT_EQ(Do(1, write).count(2), 1u);
    EXPECT_EQ(Do(1, Set("/a", "again")).count(2), 0u);
  }
}

TEST_F(KeyValueTest, Wait_SeveralKeys_ReleasedByTheLast) {
  Do(2, Wait({"/a", "/b", "/c", "/b"}));
  EXPECT_THAT(Do(1, Set("/b", "")), IsEmpty());
  EXPECT_THAT(Do(1, Set("/b", "again")), IsEmpty());
  EXPECT_THAT(Do(1, Set("/a", "")), IsEmpty());
  EXPECT_EQ(Ask(DeleteKey("/a")), Number<int64_t>(1));  // a key that was set once still counts
  EXPECT_THAT(Do(1, Set("/c", "")), ElementsAre(Pair(2, kReleased)));
}

TEST_F(KeyValueTest, Wait_ManyClients_AllReleasedOldestFirst) {
  for (ClientId client = 10; client < 20; ++client) Do(client, Wait({"/a"}));
  std::vector<Reply> replies;
  ASSERT_TRUE(store_.Apply(1, Parse(Set("/a", "")), 100, &replies).ok());
  ASSERT_EQ(replies.size(), 10u);
  for (size_t i = 0; i < replies.size(); ++i) EXPECT_EQ(replies[i].client, 10 + i);
}

TEST_F(KeyValueTest, QueuePush_WakesOneWaiterOldestFirst) {
  Do(2, Wait({"/q"}));
  Do(3, Wait({"/q"}));
  EXPECT_THAT(Do(1, QueuePush("/q", "1")), ElementsAre(Pair(2, kReleased)));
  Do(2, Wait({"/unrelated"}));
  EXPECT_THAT(Do(1, QueuePush("/q", "2")), ElementsAre(Pair(3, kReleased)));
  EXPECT_THAT(Do(1, QueuePush("/q", "3")), IsEmpty());
}

TEST_F(KeyValueTest, Wait_OnAFullQueueAndAMissingKey_OnlyTheKeyIsAwaited) {
  Do(1, QueuePush("/q", "1"));
  EXPECT_THAT(Do(2, Wait({"/q", "/a"})), IsEmpty());
  EXPECT_THAT(Do(1, Set("/a", "")), ElementsAre(Pair(2, kReleased)));
}

TEST_F(KeyValueTest, CancelWait_AlwaysAnswered) {
  EXPECT_EQ(Ask(CancelWait()), kCanceled);
  EXPECT_THAT(Do(2, Wait({"/a"})), IsEmpty());
  EXPECT_THAT(Do(2, CancelWait()), ElementsAre(Pair(2, kCanceled)));
  EXPECT_THAT(Do(1, Set("/a", "")), IsEmpty());
  Do(2, Wait({"/b"}));
  EXPECT_THAT(Do(1, Set("/b", "")), ElementsAre(Pair(2, kReleased)));
  EXPECT_THAT(Do(2, CancelWait()), ElementsAre(Pair(2, kCanceled)));
}

TEST_F(KeyValueTest, Barrier_LastOneReleasesAll) {
  for (const ClientId client : {1, 2}) EXPECT_THAT(Do(client, Barrier("/bar", 3)), IsEmpty());
  EXPECT_THAT(Do(3, Barrier("/bar", 3)),
              UnorderedElementsAre(Pair(1, kReleased), Pair(2, kReleased), Pair(3, kReleased)));
  EXPECT_EQ(Ask(Get("/bar")), Text("3"));
  EXPECT_EQ(Ask(Barrier("/bar", 3)), kReleased);  // never reset
  // A canceled participant stays counted.
  Do(2, Barrier("/b", 2));
  EXPECT_THAT(Do(2, CancelWait()), ElementsAre(Pair(2, kCanceled)));
  EXPECT_THAT(Do(3, Barrier("/b", 2)), ElementsAre(Pair(3, kReleased)));
}

TEST_F(KeyValueTest, Barrier_WritingTheKey_ReleasesToo) {
  for (const std::string& write : {Set("/bar", "1"), Append("/bar", ""), Add("/bar", 0), MultiSet({{"/bar", "1"}}),
                                   CompareSet("/bar", "1", "1"), QueuePush("/bar", "")}) {
    store_ = KeyValue(1 << 20);
    EXPECT_THAT(Do(2, Barrier("/bar", 3)), IsEmpty());
    EXPECT_EQ(Do(1, write).count(2), 1u);
  }
}

TEST_F(KeyValueTest, Forget_WaitingClient_IsNeverAnswered) {
  Do(2, Wait({"/a", "/b"}));
  store_.Forget(2);
  store_.Forget(2);
  EXPECT_THAT(Do(1, Set("/a", "")), IsEmpty());
  EXPECT_THAT(Do(1, Set("/b", "")), IsEmpty());
}

TEST_F(KeyValueTest, PendingWaits_OldestFirstWithAMissingKey) {
  Do(3, Wait({"/c"}));
  Do(2, Wait({"/a", "/b"}));
  Do(1, Set("/a", ""));
  std::vector<std::pair<ClientId, std::string>> pending;
  for (const auto& wait : store_.PendingWaits()) pending.emplace_back(wait.client, wait.key);
  EXPECT_THAT(pending, ElementsAre(Pair(3, "/c"), Pair(2, "/b")));
}

TEST_F(KeyValueTest, Apply_Full_RefusesAndStoresNothing) {
  const std::string half(600 << 10, 'x');
  EXPECT_EQ(Ask(Set("/a", half)), kNoReply);
  const size_t before = store_.bytes();
  const auto kFull = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(CodeOf(Set("/b", half)), kFull);
  EXPECT_EQ(CodeOf(Append("/a", half)), kFull);
  EXPECT_EQ(CodeOf(MultiSet({{"/c", ""}, {"/d", half}})), kFull);
  EXPECT_EQ(CodeOf(CompareSet("/b", "", half)), kFull);
  EXPECT_EQ(CodeOf(QueuePush("/q", half)), kFull);
  EXPECT_EQ(store_.bytes(), before);
  EXPECT_EQ(Ask(NumKeys()), Number<int64_t>(1));
}

TEST_F(KeyValueTest, Apply_ReplyTooLarge_Refused) {
  Ask(Set("/a", std::string(1000, 'x')));
  Ask(QueuePush("/q", std::string(1000, 'x')));
  max_reply_bytes_ = 900;
  const auto kFull = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(CodeOf(Get("/a")), kFull);
  EXPECT_EQ(CodeOf(QueuePop("/q")), kFull);
  EXPECT_EQ(CodeOf(CompareSet("/a", "y", "z")), kFull);
  max_reply_bytes_ = 1500;
  EXPECT_EQ(Ask(MultiGet({"/a"})), Text(std::string(1000, 'x')));
  EXPECT_EQ(CodeOf(MultiGet({"/a", "/a"})), kFull);
  max_reply_bytes_ = 17;
  EXPECT_EQ(CodeOf(ListKeys()), kFull);
}

TEST_F(KeyValueTest, Bytes_EverythingUndone_Zero) {
  Ask(Set("/a", "12") + Append("/a", "345") + Set("/a", "1") + Add("/a", 1));
  Ask(CompareSet("/b", "", "xyz") + QueuePush("/q", "1") + QueuePush("/q", "22"));
  Do(2, Wait({"/x", "/y"}));
  Do(3, Wait({"/x"}));
  Do(4, Barrier("/bar", 2));
  Do(2, Wait({"/z"}));
  Do(1, Set("/x", ""));
  EXPECT_GT(store_.bytes(), 0u);
  Ask(QueuePop("/q") + QueuePop("/q"));
  for (ClientId client : {2, 3, 4}) store_.Forget(client);
  for (const std::string key : {"/a", "/b", "/x", "/bar"}) EXPECT_EQ(Ask(DeleteKey(key)), Number<int64_t>(1));
  EXPECT_EQ(store_.bytes(), 0u);
}

TEST_F(KeyValueTest, Apply_RequestsOfTheConnection_Refused) {
  EXPECT_EQ(CodeOf(Ping(1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Validate()), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddprun::launcher
