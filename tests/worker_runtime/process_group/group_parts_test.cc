#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "worker_runtime/process_group/backend_choice.h"
#include "worker_runtime/process_group/failure_report.h"
#include "worker_runtime/process_group/nccl_plugin/nccl_policy.h"
#include "worker_runtime/process_group/peers.h"
#include "worker_runtime/process_group/tcp_sockets.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = FailureReport::Kind;

Peers FivePeers() {
  std::vector<Peer> peers;
  for (int rank = 0; rank < 5; ++rank) {
    peers.push_back({.host = std::string("node-") + static_cast<char>('a' + rank), .pid = 100 + rank});
  }
  return Peers(peers);
}

std::string Explained(int rank, const FailureReport& own, const FailureReports& reports) {
  return std::string(ExplainFailure(FivePeers(), rank, absl::Seconds(5), own, reports).message());
}

TEST(BackendChoice, Parse_TorchsWords_ChoosesTheSameBackends) {
  EXPECT_EQ(ParseBackendChoice("", false)->ToString(), "gloo");
  EXPECT_EQ(ParseBackendChoice("", true)->ToString(), "cpu:gloo,cuda:nccl");
  for (const char* text :
       {"gloo", "nccl", "nccl2", "cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl2", "cpu:gloo", "cuda:gloo"}) {
    EXPECT_EQ(ParseBackendChoice(text, false)->ToString(), text);
  }
  EXPECT_EQ(ParseBackendChoice(" CPU:gloo, cuda:GLOO ", false)->ToString(), "gloo");
  EXPECT_EQ(ParseBackendChoice("cuda:nccl", false)->ToString(), "nccl");
  EXPECT_EQ(ParseBackendChoice("nccl-legacy", false)->ToString(), "nccl");
}

TEST(BackendChoice, Parse_PyTorchsVariable_ChoosesTheEngineOfNccl) {
  setenv("TORCH_DIST_USE_NCCL2", "1", 1);
  EXPECT_EQ(ParseBackendChoice("", true)->ToString(), "cpu:gloo,cuda:nccl2");
  EXPECT_EQ(ParseBackendChoice("nccl", false)->ToString(), "nccl2");
  EXPECT_EQ(ParseBackendChoice("cuda:nccl-legacy", false)->ToString(), "nccl");
  setenv("TORCH_DIST_USE_NCCL2", "0", 1);
  EXPECT_EQ(ParseBackendChoice("nccl", false)->ToString(), "nccl");
  unsetenv("TORCH_DIST_USE_NCCL2");
}

TEST(BackendChoice, Parse_UnknownWord_ErrorNamesIt) {
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{{"mpi", "\"mpi\" is unknown"},
                                                        {"cpu:nccl", "NCCL does not support CPU tensors"},
                                                        {"cpu:gloo,cpu:gloo", "cpu is given twice"},
                                                        {"cuda:gloo,cuda:nccl", "cuda is given twice"},
                                                        {"cpu:mpi", "\"mpi\" is unknown"},
                                                        {"tpu:gloo", "\"tpu\" is unknown"},
                                                        {"cpu:gloo,", "is unknown"}}) {
    const absl::Status status = ParseBackendChoice(text, false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << text;
  }
}

TEST(Peers, Decode_OwnText_RoundTrips) {
  const Peer peer{.host = "node-b",
                  .pid = 4711,
                  .address = "[fe80::1]:29500",
                  .gpu = "0a1b",
                  .nccl_host = "a\ttab",
                  .settings = "backend gloo"};
  EXPECT_EQ(*Peer::Decode(peer.Encode()), peer);
  for (const char* text : {"", "a", "a\tb\tc\td\te\tf", "a\t1", "a\t1\tb", "a\t1\tb\tc\td"})
    EXPECT_FALSE(Peer::Decode(text).ok()) << text;
}

TEST(Peers, Names_ManyRanks_HaveHostAndPidUpToEight) {
  EXPECT_EQ(FivePeers().Names({1, 2}), "rank 1 (host node-b, pid 101) and rank 2 (host node-c, pid 102)");
  EXPECT_EQ(Peers().Names({1, 2, 3}), "rank 1, rank 2 and rank 3");
  EXPECT_THAT(Peers().Names({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), HasSubstr("rank 7 and 2 more"));
}

TEST(Peers, AddressesInText_GloosMessage_ReadsThePortBothWays) {
  EXPECT_THAT(AddressesInText("[/a/pair.cc:547] Connection closed by peer [127.0.0.1]:59042"),
              ElementsAre("127.0.0.1:59042", "127.0.0.1:41702"));
  EXPECT_THAT(AddressesInText("[/a/pair.cc:538] Read error [fe80::1]:256: Connection reset by peer"),
              ElementsAre("[fe80::1]:256", "[fe80::1]:1"));
  for (const char* text : {"", "Timed out", "[x]", "]:5", "[a]:99999999", "[a]:"}) {
    EXPECT_TRUE(AddressesInText(text).empty()) << text;
  }
}

TEST(Peers, CheckCompatible_TwoRanksOnOneGpu_NamesThem) {
  EXPECT_EQ(Peers({{.gpu = "a"}, {.gpu = "b"}}).CheckCompatible(), absl::OkStatus());
  EXPECT_EQ(Peers({{}, {}}).CheckCompatible(), absl::OkStatus()) << "not bound to one GPU";
  EXPECT_EQ(Peers({{.gpu = "a", .nccl_host = "1"}, {.gpu = "a", .nccl_host = "2"}}).CheckCompatible(),
            absl::OkStatus());
  const absl::Status status =
      Peers({{.gpu = "a"}, {.host = "h", .pid = 7, .gpu = "b"}, {.gpu = "b"}}).CheckCompatible();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (host h, pid 7) and rank 2 use the same GPU (UUID b)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("another value of NCCL_HOSTID"));
}

TEST(Peers, CheckCompatible_OtherSettings_NamesTheRank) {
  EXPECT_EQ(
      Peers({{.settings = "backend gloo"}, {.settings = "backend gloo"}, {.settings = "backend nccl"}})
          .CheckCompatible(),
      absl::InvalidArgumentError("rank 0 uses backend gloo, and rank 2 backend nccl: all ranks must use the same"));
}

TEST(FailureReport, Decode_OwnText_RoundTrips) {
  for (const Kind kind : {Kind::kTimeout, Kind::kLost, Kind::kAborted, Kind::kLeft}) {
    const FailureReport report{.kind = kind, .operation = "all_reduce", .sequence = 17, .lost = 3, .detail = "a\tb"};
    EXPECT_EQ(FailureReport::Decode(report.Encode()), report);
  }
  for (const char* text : {"", "lost", "odd\ta\t1\t1\tb", "lost\ta\tx\t1\tb"})
    EXPECT_FALSE(FailureReport::Decode(text)) << text;
}

TEST(FailureReport, DecodeLines_TwoOfOneRank_FirstCounts) {
  const FailureReport first{.kind = Kind::kAborted, .operation = "Abort", .detail = "two\nlines\tand a tab"};
  const FailureReport second{.kind = Kind::kLost, .operation = "barrier", .sequence = 4, .lost = 1, .detail = "x"};
  FailureReport on_one_line = first;
  on_one_line.detail = "two lines\tand a tab";
  const std::string text = EncodeMessage(3, first) + EncodeMessage(12, second) + EncodeMessage(3, second);
  EXPECT_EQ(DecodeLines(text), (FailureReports{{3, on_one_line}, {12, second}}));
  EXPECT_TRUE(DecodeLines("").empty());
  EXPECT_TRUE(DecodeLines("3\nx\tlost\ta\t1\t1\tb\n3\todd\ta\t1\t1\tb\n").empty());
}

TEST(NcclPolicy, NcclErrorHandlingToSet_LaunchersDefault_ReplacesItButKeepsTheUsers) {
  for (const char* value : {static_cast<const char*>(nullptr), "", "1"})
    EXPECT_STREQ(NcclErrorHandlingToSet(value), "2");
  for (const char* value : {"0", "2", "3"}) EXPECT_EQ(NcclErrorHandlingToSet(value), nullptr) << value;
}

TEST(NcclPolicy, SetNcclDefaults_NothingSet_WatchdogAbortsWithoutSleep) {
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", 1);
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 1);
  for (const int timeout : {19001, 5000}) {
    SetNcclDefaults();
    SetNcclLimit(std::chrono::milliseconds(timeout), /*elastic=*/false);
    EXPECT_STREQ(getenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"), "1");
    EXPECT_STREQ(getenv("TORCH_NCCL_NONBLOCKING_TIMEOUT"), "20");
    EXPECT_STREQ(getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "2");
    EXPECT_STREQ(getenv("TORCH_NCCL_DUMP_ON_TIMEOUT"), "1") << "the user's choice";
  }
}

TEST(NcclPolicy, SetNcclLimit_ElasticWorker_IsLessThanTheStopGrace) {
  unsetenv("TORCH_NCCL_NONBLOCKING_TIMEOUT");
  SetNcclLimit(std::chrono::minutes(30), /*elastic=*/true);
  EXPECT_STREQ(getenv("TORCH_NCCL_NONBLOCKING_TIMEOUT"), "20");
  unsetenv("TORCH_NCCL_NONBLOCKING_TIMEOUT");
}

// Ranks in a ring 0-1-2-3-4: rank 2 died; only its neighbours lost their connection to it.
TEST(FailureReport, FindCause_ChainOfLostConnections_IsTheSilentRank) {
  const FailureReports reports = {{1, {.operation = "all_reduce", .lost = 2}},
                                  {0, {.operation = "all_reduce", .lost = 1}},
                                  {4, {.operation = "all_reduce", .lost = 0}}};
  for (int rank : {0, 1, 4}) {
    EXPECT_THAT(Explained(rank, reports.at(rank), reports), HasSubstr("rank 2 (host node-c, pid 102) exited or was"));
  }
}

TEST(FailureReport, FindCause_LostWithoutAnAddress_UsesOthersReports) {
  const FailureReport own{.operation = "all_reduce", .detail = "Read error"};
  EXPECT_THAT(Explained(0, own, {{0, own}}),
              HasSubstr("lost connection to another rank [Read error]; no report from "));
  EXPECT_THAT(Explained(0, own, {{0, own}, {1, own}, {2, own}, {4, own}}),
              HasSubstr("no report from rank 3 (host node-d, pid 103): dead or stuck?"));
  EXPECT_THAT(Explained(0, own, {{0, own}, {1, {.lost = 3}}}),
              HasSubstr("rank 3 (host node-d, pid 103) exited or was killed"));
  EXPECT_THAT(Explained(0, own, {{0, own}, {1, {.lost = 3}}, {3, {.kind = Kind::kAborted, .detail = "bad data"}}}),
              HasSubstr("rank 3 (host node-d, pid 103) aborted the group: bad data"));
}

TEST(FailureReport, ExplainFailure_TimeoutAndStoreHostIsSilent_NamesIt) {
  const FailureReport own{.kind = Kind::kTimeout, .operation = "all_reduce", .lost = 2, .detail = "Timed out"};
  EXPECT_THAT(Explained(0, own, {}),
              HasSubstr("rank 2 (host node-c, pid 102) is not responding; check whether it is stuck, stopped or dead"));
}

TEST(FailureReport, FindCause_RanksBlameEachOther_Ends) {
  const FailureReport own{.operation = "barrier", .lost = 1};
  EXPECT_THAT(Explained(0, own, {{0, own}, {1, {.operation = "barrier", .lost = 0}}}),
              HasSubstr("lost connection to another rank"));
}

TEST(FailureReport, ExplainFailure_Timeout_NamesAllMissingRanks) {
  const FailureReport own{.kind = Kind::kTimeout, .operation = "barrier", .sequence = 3};
  const FailureReports reports = {{0, own}, {1, {.operation = "barrier", .sequence = 3, .lost = 0}}, {4, own}};
  EXPECT_EQ(ExplainFailure(FivePeers(), 0, absl::Seconds(5), own, reports).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      Explained(0, own, reports),
      HasSubstr("rank 0: barrier (collective #3): timed out after 5s: rank 2 (host node-c, pid 102) and rank 3 "));
  // A rank that is woken by the rank that timed out reports the same.
  EXPECT_THAT(Explained(1, reports.at(1), reports),
              HasSubstr("rank 0 (host node-a, pid 100) timed out in barrier (collective #3): rank 2 (host"));
}

TEST(FailureReport, ExplainFailure_TimeoutInDifferentOperations_NamesThem) {
  const FailureReport own{.kind = Kind::kTimeout, .operation = "all_reduce", .sequence = 2};
  const FailureReport other{.kind = Kind::kTimeout, .operation = "broadcast", .sequence = 2};
  EXPECT_THAT(
      Explained(0, own, {{0, own}, {1, other}, {2, own}, {3, own}, {4, own}}),
      HasSubstr("rank 1 (host node-b, pid 101) is in broadcast (collective #2), but this rank is in all_reduce"));
}

TEST(FailureReport, ExplainFailure_AllTimeOutInOneOperation_SuggestsALongerTimeout) {
  const FailureReport own{.kind = Kind::kTimeout, .operation = "all_reduce", .sequence = 2};
  EXPECT_THAT(Explained(0, own, {{0, own}, {1, own}, {2, own}, {3, own}, {4, own}}),
              HasSubstr("all ranks entered this collective"));
}

TEST(TcpSockets, HostOfAddress_AnyAddress_SplitsAtTheLastColon) {
  EXPECT_EQ(HostOfAddress("10.0.0.7:29500"), "10.0.0.7");
  EXPECT_EQ(HostOfAddress("[fe80::1]:29500"), "fe80::1");
  EXPECT_EQ(PortOfAddress("[fe80::1]:29500"), 29500);
  EXPECT_EQ(PortOfAddress(""), -1);
}

TEST(TcpSockets, LocalAddressTowards_LocalHost_IsThatHost) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1", 80), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("no.such.host.invalid", 80).status().code(), absl::StatusCode::kUnavailable);
}

TEST(TcpSockets, ShutDownTcpSockets_OneMatches_WakesItsPeerOnly) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), size), 0);
  const int server = accept(listener, nullptr, nullptr);
  const std::string there = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));

  EXPECT_EQ(FindTcpSockets([&](const TcpSocket& s) { return s.listening && s.local == there; }).size(), 1u);
  EXPECT_EQ(ShutDownTcpSockets([&](const TcpSocket& s) { return !s.listening && s.remote == there; }), 1);
  int limit = 0;
  socklen_t limit_size = sizeof limit;
  LimitSilenceOfTcpSockets([&](const TcpSocket& s) { return s.listening && s.local == there; });
  ASSERT_EQ(getsockopt(listener, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &limit_size), 0);
  EXPECT_EQ(limit, 60000);
  ASSERT_EQ(getsockopt(client, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &limit_size), 0);
  EXPECT_EQ(limit, 0);
  char byte;
  EXPECT_EQ(read(server, &byte, 1), 0);
  EXPECT_EQ(FindTcpSockets([&](const TcpSocket& s) { return s.listening && s.local == there; }).size(), 1u);
  for (int fd : {listener, client, server}) close(fd);
}

}  // namespace
}  // namespace ddprun
