#include "launcher/report/first_cause.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

const absl::Time kSeen = absl::FromUnixSeconds(1'700'000'000) + absl::Milliseconds(500);

FailureEvidence Evidence(absl::string_view text) {
  FailureEvidence evidence{.failure = TextProto(text, rendezvous::NewFailure())};
  *evidence.failure.mutable_at() = FromTime(kSeen);
  return evidence;
}

FailureEvidence Killed(int signal) { return Evidence(absl::StrCat("pid: 1 signal: ", signal)); }

FailureEvidence Exited(const char* message, std::optional<absl::Duration> raised_before = std::nullopt) {
  FailureEvidence evidence = Evidence("pid: 1 exit_code: 1");
  evidence.failure.set_message(message);
  if (raised_before) evidence.raised_at = absl::FromUnixSeconds(absl::ToUnixSeconds(kSeen - *raised_before));
  return evidence;
}

FailureEvidence StoppedByUs(FailureEvidence evidence) {
  evidence.stopped_by_us = true;
  return evidence;
}

FailureEvidence NotExecuted() { return Evidence("exit_code: 127 restartable: false"); }

FailureEvidence OutOfMemory() {
  FailureEvidence evidence = Killed(SIGKILL);
  evidence.failure.set_oom_killed(true);
  return evidence;
}

TEST(Classify, EveryKind_IsKnown) {
  EXPECT_EQ(Classify(NotExecuted()), FailureClass::kNotExecuted);
  EXPECT_EQ(Classify(OutOfMemory()), FailureClass::kOutOfMemory);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGKILL, SIGSYS, SIGTRAP, SIGXCPU, SIGUSR1}) {
    EXPECT_EQ(Classify(Killed(signal)), FailureClass::kCrash) << signal;
  }
  EXPECT_EQ(Classify(Exited("ValueError: x", absl::ZeroDuration())), FailureClass::kOwnError);
  EXPECT_EQ(Classify(Exited("")), FailureClass::kUnclear);
  EXPECT_EQ(Classify(Killed(SIGABRT)), FailureClass::kUnclear);
  EXPECT_EQ(Classify(Killed(SIGPIPE)), FailureClass::kPeerError);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    EXPECT_EQ(Classify(Killed(signal)), FailureClass::kAskedToStop) << signal;
  }
  EXPECT_EQ(Classify(StoppedByUs(Killed(SIGKILL))), FailureClass::kStoppedByUs);
  EXPECT_EQ(Classify(StoppedByUs(OutOfMemory())), FailureClass::kStoppedByUs);
}

TEST(Classify, LostPeers_AreRecognised) {
  for (const char* message :
       {"RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: Connection refused", "BrokenPipeError: [Errno 32] Broken pipe",
        "DistStoreError: wait timeout after 300000ms", "Watchdog caught collective operation timeout"}) {
    EXPECT_EQ(Classify(Exited(message, absl::ZeroDuration())), FailureClass::kPeerError) << message;
  }
}

TEST(ChooseFirstCause, OrderOfKinds_Holds) {
  // From the likeliest to the least likely: the earlier of two must win in both orders.
  const std::vector<FailureEvidence> ordered = {
      NotExecuted(),   OutOfMemory(),
      Killed(SIGSEGV), Exited("ValueError: x", absl::ZeroDuration()),
      Exited(""),      Exited("Connection reset by peer", absl::ZeroDuration()),
      Killed(SIGTERM), StoppedByUs(Killed(SIGKILL)),
  };
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = i + 1; j < ordered.size(); ++j) {
      EXPECT_EQ(ChooseFirstCause({ordered[i], ordered[j]}), 0) << i << " " << j;
      EXPECT_EQ(ChooseFirstCause({ordered[j], ordered[i]}), 1) << i << " " << j;
    }
  }
  std::vector<FailureEvidence> reversed(ordered.rbegin(), ordered.rend());
  EXPECT_EQ(ChooseFirstCause(reversed), reversed.size() - 1);
}

TEST(ChooseFirstCause, EarlierTimestamp_Wins) {
  EXPECT_EQ(
      ChooseFirstCause({Exited("A", absl::Seconds(1)), Exited("B", absl::Seconds(3)), Exited("C", absl::Seconds(2))}),
      1);
}

TEST(ChooseFirstCause, Equals_KeepTheirOrder) {
  EXPECT_EQ(ChooseFirstCause({Exited("A"), Exited("B")}), 0);
  EXPECT_EQ(ChooseFirstCause({Killed(SIGSEGV), Killed(SIGKILL)}), 0);
  EXPECT_EQ(ChooseFirstCause({Exited("A", absl::Seconds(1)), Exited("B", absl::Seconds(1))}), 0);
}

TEST(ChooseFirstCause, ErrorWellBeforeACrash_IsTheCause) {
  EXPECT_EQ(ChooseFirstCause({Killed(SIGSEGV), Exited("ValueError: x", absl::Seconds(5))}), 1);
  EXPECT_EQ(ChooseFirstCause({Killed(SIGSEGV), Exited("B", absl::Seconds(5)), Exited("C", absl::Seconds(9))}), 2);
}

TEST(ChooseFirstCause, ErrorWithinTheTimestampsPrecision_IsNot) {
  // Error files have whole seconds: the error was raised within the same second.
  EXPECT_EQ(ChooseFirstCause({Killed(SIGSEGV), Exited("ValueError: x", absl::ZeroDuration())}), 0);
  EXPECT_EQ(ChooseFirstCause({Killed(SIGSEGV), Exited("Connection reset by peer", absl::Seconds(5))}), 0);
}

TEST(ChooseFirstCause, OutOfMemory_IsTheCauseEvenOfEarlierErrors) {
  EXPECT_EQ(ChooseFirstCause({Exited("ValueError: x", absl::Seconds(5)), OutOfMemory()}), 1);
}

TEST(ChooseFirstCause, One_IsTheCauseWhateverItIs) { EXPECT_EQ(ChooseFirstCause({StoppedByUs(Killed(SIGKILL))}), 0); }

}  // namespace
}  // namespace ddprun::launcher
