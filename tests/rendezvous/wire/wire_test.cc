#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/substitute.h"
#include "rendezvous/core/inspection.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/validate.h"
#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/samples.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

template <typename Message>
Message OverTheWire(const Message& message) {
  auto proto = ToProto(message);
  const std::string bytes = proto.SerializeAsString();
  EXPECT_LE(bytes.size(), kMaxMessageBytes);
  decltype(proto) received;
  EXPECT_TRUE(received.ParseFromString(bytes));
  const absl::StatusOr<Message> back = FromProto(received);
  EXPECT_TRUE(back.ok()) << back.status();
  return back.ok() ? *back : Message{};
}

RankProgress RankAt(int32_t local_rank, int64_t step) {
  return TextProto<RankProgress>(absl::Substitute(
      "local_rank: $0 step: $1 samples: 3000000000 phase: 'forward' loss: 0.25 ago { seconds: 1 }", local_rank, step));
}

Progress ProgressOf(const std::vector<RankProgress>& ranks) {
  Progress progress;
  progress.set_round(8);
  progress.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  return progress;
}

TEST(LauncherWireTest, RoundTrip_EveryMessage_IsUnchanged) {
  const Join plain = TextProto(  // only required fields
      "job_id: 'j' node_id: 'n' host: 'h' address: '::1' store_port: 1 session_secret: '0123456789abcdef'", NewJoin());
  Join stopping = SampleJoin();
  stopping.set_store_port(0);  // its store is being opened
  stopping.set_node_rank(0);
  stopping.set_phase(Join::PHASE_STOPPING);
  const WorkerFailure lost = TextProto("host: 'node2'", NewFailure());
  const std::vector<LauncherMessage> messages = {
      SampleJoin(),
      plain,
      stopping,
      Heartbeat{},
      NewWorkerFailed(8, SampleFailure()),
      NewWorkerFailed(1, lost),
      NewGroupSucceeded(9),
      NewReady(8, 40002, "0f0f0f0f0f0f0f0f"),
      NewReady(8, 40002, "", std::vector<Survivor>{NewSurvivor(1, 0), NewSurvivor(4095)}, true),
      NewReady(8, 40002, "", std::vector<Survivor>(), false, true),
      NewLeave("SIGTERM", true, 15),
      ProgressOf({}),
      ProgressOf({RankAt(4, 12), RankAt(4095, 0)}),
      NewHang(Hang::KIND_HUNG, 8, "rank 5 hangs\n  in f", {5, 0}),
      NewHang(Hang::KIND_CONTINUED, 8, "continued"),
      TextProto<Inspection>(R"(id: 3 round: 8 last: true ranks { rank: 5 pid: 4711 state: "sleeps; state S"
                                  text: "main thread:\n  in f" native: "in g" })"),
      TextProto<Inspection>(R"(id: 3 round: 8 outputs { rank: 5 is_stderr: true text: "a\n\xff\x1b" end: 9 gap: true }
                               usages { rank: 5 pid: 9 cpu: 1.5 memory_bytes: 7 io: 2 net: 3 collectives: 0 gpu: 0.5
                                        gpu_memory_bytes: 6 })")};
  for (const LauncherMessage& message : messages) EXPECT_EQ(OverTheWire(message), message) << message.index();
}

TEST(LauncherWireTest, Progress_OutOfBounds_IsRefusedByName) {
  struct Case {
    Progress progress;
    const char* problem;
  };
  const RankProgress good = RankAt(1, 5), negative = RankAt(1, -1);
  for (const Case& c :
       {Case{ProgressOf({negative}), "progress.step"}, Case{ProgressOf({good, good}), "progress.local_rank"},
        Case{ProgressOf(std::vector<RankProgress>(300, good)), "progress.ranks: has 300 entries"}}) {
    const auto read = FromProto(ToProto(LauncherMessage(c.progress)));
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.status().message().find(c.problem), std::string::npos) << read.status();
  }
}

TEST(LauncherWireTest, RoundTrip_EveryPhase_IsUnchanged) {
  for (const auto phase : {Join::PHASE_IDLE, Join::PHASE_RUNNING, Join::PHASE_SUCCEEDED, Join::PHASE_STOPPING}) {
    LauncherMessage message = SampleJoin();
    std::get<Join>(message).set_phase(phase);
    EXPECT_EQ(OverTheWire(message), message);
  }
}

TEST(LauncherWireTest, RoundTrip_Origin_IsNotSent) {
  Join join = SampleJoin();
  join.mutable_origin()->set_in_process(true);
  EXPECT_FALSE(std::get<Join>(OverTheWire(LauncherMessage(join))).has_origin());
}

TEST(ServerWireTest, RoundTrip_EveryMessage_IsUnchanged) {
  const auto success = TextProto<Verdict>("succeeded: true reason: 'all workers ended well'");
  Waiting until_forever = SampleWaiting();
  *until_forever.mutable_remaining() = FromDuration(absl::InfiniteDuration());
  const Welcome full = TextProto("by_launcher: true protocol_version: 7 missed_round: 41 server_process: 'boot 1 77'",
                                 NewWelcome(absl::Seconds(1), absl::Seconds(6)));
  const std::vector<ServerMessage> messages = {NewWelcome(absl::Seconds(1), absl::Seconds(6)),
                                               NewWelcome(absl::InfiniteDuration(), absl::Seconds(6)),
                                               full,
                                               HeartbeatAck{},
                                               SampleWaiting(),
                                               until_forever,
                                               NewAssign(SampleAssignment()),
                                               NewStopRound(8, "rank 5 failed", SampleFailure()),
                                               NewStopRound(8, "node2 was lost", std::nullopt, true, false),
                                               NewStopRound(8, "node2 joined", std::nullopt, true, true),
                                               NewFinish(SampleVerdict()),
                                               NewFinish(success),
                                               NewRejected("other settings"),
                                               NewExcludedFromRound(9, "node2 is left out"),
                                               NewHang(Hang::KIND_HUNG, 8, "rank 5 hangs\n  in f", {5, 0}),
                                               TextProto<Inspect>("id: 3 round: 8 ranks: [5, 0] native: true"),
                                               TextProto<Inspect>(R"(id: 3 round: 8 ranks: 5 what: WHAT_OUTPUT
                                                   after { rank: 5 is_stderr: true end: 7 } since { seconds: 9 })")};
  for (const ServerMessage& message : messages) EXPECT_EQ(OverTheWire(message), message) << message.index();
}

TEST(LauncherWireTest, ToProto_TextsTooLongOrNotUtf8_AreMadeToFit) {
  WorkerFailed failed = NewWorkerFailed(1, SampleFailure());
  failed.mutable_failure()->set_message(std::string(100'000, 'x'));
  failed.mutable_failure()->set_traceback(std::string(100'000, '\xFF'));
  failed.mutable_failure()->set_error_file("/tmp/\xC3");
  const auto back = std::get<WorkerFailed>(OverTheWire(LauncherMessage(failed)));
  EXPECT_EQ(back.failure().message().size(), kMaxTextBytes);
  EXPECT_TRUE(absl::EndsWith(back.failure().message(), "x..."));
  EXPECT_EQ(back.failure().traceback().size(), kMaxTracebackBytes);
  EXPECT_EQ(back.failure().error_file(), "/tmp/?");
}

struct BadLauncherMessage {
  const char* names;  // field that the error must name
  std::function<void(v1::LauncherMessage*)> spoil;
};

// Bounds of a Join's fields are those of Validate, which has its own test.
TEST(LauncherWireTest, FromProto_Malformed_NamesTheField) {
  const auto join = [](std::function<void(v1::Join*)> spoil) {
    return [spoil](v1::LauncherMessage* message) { spoil(message->mutable_join()); };
  };
  const auto failure = [](std::function<void(v1::WorkerFailure*)> spoil) {
    return [spoil](v1::LauncherMessage* message) {
      *message = ToProto(LauncherMessage(NewWorkerFailed(1, SampleFailure())));
      spoil(message->mutable_worker_failed()->mutable_failure());
    };
  };
  const std::vector<BadLauncherMessage> cases = {
      {"message", [](v1::LauncherMessage* m) { m->clear_message(); }},
      {"join.job_id", join([](v1::Join* j) { j->set_job_id("two\nlines"); })},
      {"join.origin", join([](v1::Join* j) { j->mutable_origin()->set_in_process(true); })},
      {"join.role", join([](v1::Join* j) { j->set_role("a\nb"); })},
      {"join.settings: is missing", join([](v1::Join* j) { j->clear_settings(); })},
      {"join.settings.join_timeout", join([](v1::Join* j) { j->mutable_settings()->clear_join_timeout(); })},
      {"join.settings.last_call",
       join([](v1::Join* j) { j->mutable_settings()->mutable_last_call()->set_seconds(1LL << 62); })},
      {"join.settings.last_call",
       join([](v1::Join* j) { j->mutable_settings()->mutable_last_call()->set_nanos(1'000'000'000); })},
      {"join.settings.reconnect_grace",
       join([](v1::Join* j) { j->mutable_settings()->mutable_reconnect_grace()->set_nanos(-1); })},
      {"join.phase", join([](v1::Join* j) { j->clear_phase(); })},
      {"join.protocol_version", join([](v1::Join* j) { j->clear_protocol_version(); })},
      {"join.heartbeat_timeout", join([](v1::Join* j) { j->clear_heartbeat_timeout(); })},
      {"join.settings.restart_window", join([](v1::Join* j) { j->mutable_settings()->clear_restart_window(); })},
      {"join.session_secret", join([](v1::Join* j) { j->clear_session_secret(); })},
      {"join.current: is missing", join([](v1::Join* j) { j->clear_current(); })},
      {"join.survivors: has local rank 0 after 0",
       join([](v1::Join* j) { j->mutable_survivors(1)->set_local_rank(0); })},
      {"join.survivors: has step -1", join([](v1::Join* j) { j->mutable_survivors(1)->set_committed_step(-1); })},
      {"worker_failed.failure: is missing", [](v1::LauncherMessage* m) { m->mutable_worker_failed(); }},
      {"worker_failed.failure.traceback",
       failure([](v1::WorkerFailure* f) { f->set_traceback(std::string(kMaxTracebackBytes + 1, 'x')); })},
      {"worker_failed.failure.exit_code", failure([](v1::WorkerFailure* f) { f->set_exit_code(-1); })},
      {"worker_failed.failure.signal", failure([](v1::WorkerFailure* f) { f->set_signal(65); })},
      {"worker_failed.failure.pid", failure([](v1::WorkerFailure* f) { f->set_pid(1LL << 40); })},
      {"worker_failed.failure.at", failure([](v1::WorkerFailure* f) { f->mutable_at()->set_seconds(-(1LL << 60)); })},
      {"worker_failed.failure.step", failure([](v1::WorkerFailure* f) { f->set_step(-1); })},
      {"ready.survivors",
       [](v1::LauncherMessage* m) {
         m->mutable_ready()->set_store_port(1);
         m->mutable_ready()->add_survivors()->set_local_rank(kMaxSlots);
       }},
      {"ready.store_port", [](v1::LauncherMessage* m) { m->mutable_ready()->set_store_port(-1); }},
      {"leave.reason",
       [](v1::LauncherMessage* m) { m->mutable_leave()->set_reason(std::string(kMaxTextBytes + 1, 'x')); }},
      {"leave.reason", [](v1::LauncherMessage* m) { m->mutable_leave()->set_reason("\xFF"); }},
      {"hang.kind: is missing", [](v1::LauncherMessage* m) { m->mutable_hang(); }},
      {"hang.text", [](v1::LauncherMessage* m) { m->mutable_hang()->set_text(std::string(kMaxHangBytes + 1, 'x')); }},
      {"hang.ranks: must", [](v1::LauncherMessage* m) { m->mutable_hang()->add_ranks(-1); }},
      {"hang.ranks: names 257",
       [](v1::LauncherMessage* m) { m->mutable_hang()->mutable_ranks()->Resize(kMaxRanksInHang + 1, 0); }},
      {"inspection.ranks: has 257",
       [](v1::LauncherMessage* m) {
         for (int i = 0; i <= kMaxRanksInInspection; ++i) m->mutable_inspection()->add_ranks();
       }},
      {"inspection.rank", [](v1::LauncherMessage* m) { m->mutable_inspection()->add_ranks()->set_rank(-1); }},
      {"inspection.pid", [](v1::LauncherMessage* m) { m->mutable_inspection()->add_ranks()->set_pid(-1); }},
      {"inspection.text",
       [](v1::LauncherMessage*
              m) { m->mutable_inspection()->add_ranks()->set_text(std::string(kMaxStackBytes + 1, 'x')); }},
      {"inspection.native",
       [](v1::LauncherMessage*
              m) { m->mutable_inspection()->add_ranks()->set_native(std::string(kMaxNativeStackBytes + 1, 'x')); }},
      {"inspection.outputs: has 513",
       [](v1::LauncherMessage* m) {
         for (int i = 0; i <= kMaxOutputsInInspection; ++i) m->mutable_inspection()->add_outputs();
       }},
      {"inspection.rank", [](v1::LauncherMessage* m) { m->mutable_inspection()->add_outputs()->set_rank(-1); }},
      {"inspection.text: has 65537",
       [](v1::LauncherMessage*
              m) { m->mutable_inspection()->add_outputs()->set_text(std::string(kMaxOutputBytes + 1, 'x')); }},
      {"inspection.usages: has 257",
       [](v1::LauncherMessage* m) {
         for (int i = 0; i <= kMaxUsagesInInspection; ++i) m->mutable_inspection()->add_usages();
       }},
      {"inspection.pid", [](v1::LauncherMessage* m) { m->mutable_inspection()->add_usages()->set_pid(-1); }},
      {"hang.at", [](v1::LauncherMessage* m) { m->mutable_hang()->mutable_at()->set_nanos(-1); }},
  };
  for (const BadLauncherMessage& bad : cases) {
    v1::LauncherMessage message = ToProto(LauncherMessage(SampleJoin()));
    ASSERT_TRUE(FromProto(message).ok());
    bad.spoil(&message);
    const absl::Status status = FromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.names;
    EXPECT_TRUE(absl::StartsWithIgnoreCase(status.message(), bad.names)) << status.message() << ", not " << bad.names;
  }
}

TEST(ServerWireTest, FromProto_Malformed_NamesTheField) {
  const auto code_and_text = [](const v1::ServerMessage& message) {
    const absl::Status status = FromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::ServerMessage message;
  EXPECT_EQ(code_and_text(message), "message: is missing");
  message.mutable_assign();
  EXPECT_EQ(code_and_text(message), "assign.assignment: is missing");
  message.mutable_finish();
  EXPECT_EQ(code_and_text(message), "finish.verdict: is missing");
  message.mutable_welcome()->set_protocol_version(1);
  message.mutable_welcome()->mutable_heartbeat_interval();
  EXPECT_EQ(code_and_text(message), "welcome.heartbeat_interval: must be at least 1ms");
  message = ToProto(ServerMessage(SampleWaiting()));
  for (int i = 0; i <= kMaxHostsTold; ++i) message.mutable_waiting()->add_hosts("h");
  EXPECT_EQ(code_and_text(message), "waiting.hosts: names 259, more than 256");
  message = ToProto(ServerMessage(NewFinish(SampleVerdict())));
  message.mutable_finish()->mutable_verdict()->set_exit_code(256);
  EXPECT_EQ(code_and_text(message), "finish.verdict.exit_code: must be from 0 to 255, not 256");
  message.mutable_finish()->mutable_verdict()->mutable_first_cause()->clear_ran_for();
  EXPECT_EQ(code_and_text(message), "finish.verdict.first_cause.ran_for: is missing");
}

TEST(ServerWireTest, FromProto_InspectOutOfBounds_IsRefused) {
  v1::ServerMessage many, never;
  for (int i = 0; i <= 2 * kMaxSlots; ++i) many.mutable_inspect()->add_after();
  EXPECT_EQ(FromProto(many).status().message(), "inspect.after: has 8193 entries, more than 8192");
  never.mutable_inspect()->mutable_since()->set_seconds(-1);
  EXPECT_EQ(FromProto(never).status().code(), absl::StatusCode::kInvalidArgument);
}

// Amounts are shown and written as JSON, and the host is the server's to say.
TEST(LauncherWireTest, FromProto_UsageOfNoSense_BecomesZero) {
  v1::LauncherMessage message;
  RankUsage* const usage = message.mutable_inspection()->add_usages();
  usage->set_host("forged");
  usage->set_cpu(std::numeric_limits<double>::quiet_NaN());
  usage->set_gpu(-std::numeric_limits<double>::infinity());
  usage->set_memory_bytes(-1);
  EXPECT_EQ(std::get<Inspection>(FromProto(message).value()), TextProto<Inspection>("usages { gpu: 0 }"));
}

// A peer's texts cannot forge a line of a log or control a terminal.
TEST(LauncherWireTest, FromProto_TextsForPeople_AreCleaned) {
  v1::LauncherMessage leave = ToProto(LauncherMessage(NewLeave("x")));
  leave.mutable_leave()->set_reason(
      "gone\nddprun: all is well\x1b[2J\xC2\x9B"
      "31m\r");
  EXPECT_EQ(std::get<Leave>(FromProto(leave).value()).reason(), "gone ddprun: all is well?[2J?31m");
  v1::LauncherMessage failed = ToProto(LauncherMessage(NewWorkerFailed(1, SampleFailure())));
  failed.mutable_worker_failed()->mutable_failure()->set_message("a\nb\x1b");
  failed.mutable_worker_failed()->mutable_failure()->set_error_file("/a\nb");
  failed.mutable_worker_failed()->mutable_failure()->set_traceback("line 1\n\x1b[0mline 2");
  const WorkerFailure read = std::get<WorkerFailed>(FromProto(failed).value()).failure();
  EXPECT_EQ(read.message(), "a b?");
  EXPECT_EQ(read.error_file(), "/a b");
  EXPECT_EQ(read.traceback(), "line 1\n?[0mline 2");
}

TEST(LauncherWireTest, FromProto_NameWithC1Control_IsRefused) {
  v1::LauncherMessage message = ToProto(LauncherMessage(SampleJoin()));
  message.mutable_join()->set_host(
      "node\xC2\x9B"
      "1");
  EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServerWireTest, FromProto_TextsForPeople_AreCleaned) {
  v1::ServerMessage message = ToProto(ServerMessage(NewRejected("x")));
  message.mutable_rejected()->set_reason("no\nyes\x07");
  EXPECT_EQ(std::get<Rejected>(FromProto(message).value()).reason(), "no yes?");
}

// Protocol 7.2: message kinds that an older peer does not know.
template <typename Proto>
void ExpectUnknownKindIsUnimplemented() {
  Proto newer;
  ASSERT_TRUE(newer.ParseFromString("\xFA\x01\x02hi"));
  EXPECT_EQ(FromProto(newer).status().code(), absl::StatusCode::kUnimplemented) << FromProto(newer).status();
  EXPECT_EQ(FromProto(Proto()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WireTest, FromProto_UnknownKind_Unimplemented) {
  ExpectUnknownKindIsUnimplemented<v1::LauncherMessage>();
  ExpectUnknownKindIsUnimplemented<v1::ServerMessage>();
}

// Protocol 7.3.
TEST(LauncherWireTest, FromProto_UnknownPhase_CountsAsRunning) {
  v1::LauncherMessage message = ToProto(LauncherMessage(SampleJoin()));
  message.mutable_join()->set_phase(static_cast<v1::Join::Phase>(99));
  const absl::StatusOr<LauncherMessage> read = FromProto(message);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<Join>(*read).phase(), Join::PHASE_RUNNING);
}

// Random bytes yield an error, or a message that survives another round trip.
TEST(LauncherWireTest, FromProto_BytesFlipped_NeverCrashes) {
  google::protobuf::SetLogHandler(nullptr);  // protobuf logs every string that is not UTF-8
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good = ToProto(LauncherMessage(SampleJoin())).SerializeAsString();
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    v1::LauncherMessage message;
    if (!message.ParseFromString(bytes)) continue;
    const absl::StatusOr<LauncherMessage> read = FromProto(message);
    if (!read.ok()) continue;
    ++accepted;
    ASSERT_EQ(OverTheWire(*read), *read);
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace ddprun::rendezvous
