#include "launcher/store/request_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/launcher/store/request_bytes.h"

namespace ddprun::launcher {
namespace {

using Outcome = RequestParser::Outcome;

// One example of each request, with its expected parse result.
struct Example {
  std::string bytes;
  Request request;
};

std::vector<Example> Examples() {
  const std::string nul("/a\0b", 4);
  return {
      {Validate(), {Opcode::kValidate, {}, {}, kValidateMagic}},
      {Set("/a", "1"), {Opcode::kSet, {"/a"}, {"1"}}},
      {Set(nul, ""), {Opcode::kSet, {nul}, {""}}},
      {Set("", "\xff"), {Opcode::kSet, {""}, {"\xff"}}},
      {CompareSet("/a", "", "x"), {Opcode::kCompareSet, {"/a"}, {"", "x"}}},
      {Get("/a"), {Opcode::kGet, {"/a"}}},
      {Add("/ctr", -7), {Opcode::kAdd, {"/ctr"}, {}, -7}},
      {Check({"/a", "/b"}), {Opcode::kCheck, {"/a", "/b"}}},
      {Wait({}), {Opcode::kWait}},
      {Wait({"/a", "/a", ""}), {Opcode::kWait, {"/a", "/a", ""}}},
      {NumKeys(), {Opcode::kNumKeys}},
      {DeleteKey("/a"), {Opcode::kDeleteKey, {"/a"}}},
      {Append("/a", "more"), {Opcode::kAppend, {"/a"}, {"more"}}},
      {MultiGet({"/a"}), {Opcode::kMultiGet, {"/a"}}},
      {MultiGet({}), {Opcode::kMultiGet}},
      {MultiSet({{"/a", "1"}, {"/b", "22"}}), {Opcode::kMultiSet, {"/a", "/b"}, {"1", "22"}}},
      {MultiSet({}), {Opcode::kMultiSet}},
      {CancelWait(), {Opcode::kCancelWait}},
      {Ping(0xFFFFFFFF), {Opcode::kPing, {}, {}, 0xFFFFFFFF}},
      {QueuePush("/q", "v"), {Opcode::kQueuePush, {"/q"}, {"v"}}},
      {QueuePop("/q"), {Opcode::kQueuePop, {"/q"}}},
      {QueueLength("/q"), {Opcode::kQueueLength, {"/q"}}},
      {ListKeys(), {Opcode::kListKeys}},
      {Barrier("/bar", 3), {Opcode::kBarrier, {"/bar"}, {}, 3}},
      {Op(Opcode::kRegisterNode) + Text("payload"), {Opcode::kRegisterNode, {}, {"payload"}}},
      {Op(Opcode::kEvidence) + Text("payload"), {Opcode::kEvidence, {}, {"payload"}}},
  };
}

void ExpectSame(const Request& got, const Request& want) {
  EXPECT_EQ(got.opcode, want.opcode);
  EXPECT_EQ(got.keys, want.keys);
  EXPECT_EQ(got.values, want.values);
  EXPECT_EQ(got.number, want.number);
}

std::string ErrorOf(absl::string_view bytes, const RequestLimits& limits = RequestLimits()) {
  RequestParser parser(limits);
  parser.Append(bytes);
  Request request;
  Outcome outcome = parser.Next(&request);
  while (outcome == Outcome::kRequest) outcome = parser.Next(&request);
  EXPECT_EQ(outcome == Outcome::kBad, !parser.error().empty());
  return parser.error();
}

TEST(RequestParser, Next_KnownBytes_ReadAsDocumented) {
  // set("a", "1") and add("ctr", -7) as a torch client sends them.
  RequestParser parser;
  parser.Append(absl::string_view("\1\2\0\0\0\0\0\0\0/a\1\0\0\0\0\0\0\0001", 20));
  parser.Append(absl::string_view("\4\4\0\0\0\0\0\0\0/ctr\xf9\xff\xff\xff\xff\xff\xff\xff", 21));
  Request request;
  ASSERT_EQ(parser.Next(&request), Outcome::kRequest);
  ExpectSame(request, {Opcode::kSet, {"/a"}, {"1"}});
  ASSERT_EQ(parser.Next(&request), Outcome::kRequest);
  ExpectSame(request, {Opcode::kAdd, {"/ctr"}, {}, -7});
  EXPECT_EQ(parser.Next(&request), Outcome::kNeedMore);
}

TEST(RequestParser, Next_SplitAtEveryByte_SameRequests) {
  for (const Example& example : Examples()) {
    for (size_t split = 0; split <= example.bytes.size(); ++split) {
      SCOPED_TRACE(testing::Message() << "opcode " << int(example.request.opcode) << " split at " << split);
      RequestParser parser;
      Request request;
      parser.Append(absl::string_view(example.bytes).substr(0, split));
      if (split < example.bytes.size()) {
        ASSERT_EQ(parser.Next(&request), Outcome::kNeedMore);
        parser.Append(absl::string_view(example.bytes).substr(split));
      }
      ASSERT_EQ(parser.Next(&request), Outcome::kRequest);
      ExpectSame(request, example.request);
      EXPECT_EQ(parser.Next(&request), Outcome::kNeedMore);
    }
  }
}

TEST(RequestParser, Next_ManyRequestsByteByByteAndAtOnce_SameRequests) {
  std::string all;
  for (const Example& example : Examples()) all += example.bytes;
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, all.size()}) {
    RequestParser parser;
    std::vector<Request> got;
    for (size_t at = 0; at < all.size(); at += piece) {
      parser.Append(absl::string_view(all).substr(at, piece));
      Request request;
      while (parser.Next(&request) == Outcome::kRequest) got.push_back(request);
    }
    const std::vector<Example> want = Examples();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ExpectSame(got[i], want[i].request);
  }
}

TEST(RequestParser, Next_AtTheLimits_Accepted) {
  EXPECT_EQ(ErrorOf(Get(std::string(8192, 'k'))), "");
  EXPECT_EQ(ErrorOf(Set("/v", std::string(8 << 20, 'v'))), "");
  EXPECT_EQ(ErrorOf(Check(std::vector<std::string>(131072, "k"))), "");
}

TEST(RequestParser, Next_BeyondTheLimits_BadBeforeTheBytesCome) {
  EXPECT_NE(ErrorOf(Op(Opcode::kGet) + Number<uint64_t>(8193)), "");
  EXPECT_NE(ErrorOf(Op(Opcode::kGet) + Number<uint64_t>(UINT64_MAX)), "");
  EXPECT_NE(ErrorOf(Op(Opcode::kSet) + Text("/a") + Number<uint64_t>((8 << 20) + 1)), "");
  EXPECT_NE(ErrorOf(Op(Opcode::kSet) + Text("/a") + Number<uint64_t>(UINT64_MAX - 7)), "");
  EXPECT_NE(ErrorOf(Op(Opcode::kWait) + Number<uint64_t>(131073)), "");
  EXPECT_NE(ErrorOf(Op(Opcode::kMultiSet) + Number<uint64_t>(UINT64_MAX)), "");
}

TEST(RequestParser, Next_RequestLongerThanAllowedInSum_Bad) {
  RequestLimits limits;
  limits.request_bytes = 1000;
  EXPECT_EQ(ErrorOf(Set("/a", std::string(900, 'v')), limits), "");
  EXPECT_EQ(ErrorOf(MultiSet({{"/a", std::string(900, 'v')}, {"/b", std::string(900, 'v')}}), limits),
            "a request of more than 1000 bytes");
}

TEST(RequestParser, Next_UnknownOpcode_BadAndNamed_AndStaysBad) {
  EXPECT_EQ(ErrorOf("\x13"), "unknown request 0x13");
  EXPECT_EQ(ErrorOf(NumKeys() + "GET / HTTP/1.0\r\n"), "unknown request 0x47");
  RequestParser parser;
  Request request;
  for (const std::string& bytes : {std::string("\x63"), NumKeys()}) {
    parser.Append(bytes);
    EXPECT_EQ(parser.Next(&request), Outcome::kBad);
  }
}

TEST(RequestParser, HeldBytes_LargeRequestTaken_GivenBack) {
  RequestParser parser;
  parser.Append(Set("/v", std::string(4 << 20, 'v')));
  Request request;
  ASSERT_EQ(parser.Next(&request), Outcome::kRequest);
  ASSERT_EQ(parser.Next(&request), Outcome::kNeedMore);
  EXPECT_LT(parser.held_bytes(), 10000u);
}

TEST(RequestParser, HeldBytes_PartOfARequest_Counted) {
  RequestParser parser;
  const std::string bytes = Check(std::vector<std::string>(100000, "k"));
  parser.Append(absl::string_view(bytes).substr(0, bytes.size() - 1));
  Request request;
  ASSERT_EQ(parser.Next(&request), Outcome::kNeedMore);
  EXPECT_GT(parser.held_bytes(), 100000 * sizeof(std::string));
}

// Random streams: valid requests with bytes changed, removed and inserted. The parser must terminate, hold at most a
// small multiple of its input, and parse an unmodified stream correctly.
TEST(RequestParser, Next_RandomDamage_EndsAndHoldsLittle) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<Example> examples = Examples();
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (int i = random() % 6; i >= 0; --i) bytes += examples[random() % examples.size()].bytes;
    for (int i = random() % 4; i > 0; --i) {
      const size_t at = random() % bytes.size();
      if (random() % 3 == 0)
        bytes.erase(at, 1 + random() % 9);
      else if (random() % 2 == 0)
        bytes[at] = static_cast<char>(random());
      else
        bytes.insert(at, 1, static_cast<char>(random()));
      if (bytes.empty()) bytes = "\5";
    }
    RequestParser parser;
    size_t requests = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t piece = 1 + random() % 40;
      parser.Append(absl::string_view(bytes).substr(at, piece));
      at += piece;
      Request request;
      while (parser.Next(&request) == Outcome::kRequest) ++requests;
    }
    ASSERT_LE(requests, bytes.size());
    ASSERT_LE(parser.held_bytes(), 4096 + 100 * bytes.size());
  }
}

}  // namespace
}  // namespace ddprun::launcher
