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
        "DistStoreError: wait timeout after 300000ms", "Watchdog caught collective operation timeout",
        "RuntimeError: NCCL operation timed out", "RuntimeError: Failed to initialize NCCL communicator: timeout",
        "RuntimeError: NCCL Revoke failed: remote error", "RuntimeError: NCCL Async Error: unhandled system error",
        "RuntimeError: NCCL communicator not initialized.", "allreduce: rank 1 exited or was killed; check its output",
        "barrier: rank 0 aborted the group: stopped"}) {
    EXPECT_EQ(Classify(Exited(message, absl::ZeroDuration())), FailureClass::kPeerError) << message;
  }
}

// PyTorch's watchdog aborts the process of a rank whose collective can't end.
TEST(Classify, WatchdogAbort_IsAPeerErrorUnlessTheDeviceFailed) {
  FailureEvidence aborted = Killed(SIGABRT);
  for (const char* message : {"[E] [rank1] Aborting process on rank 1 due to timeout - collective operation timed out",
                              "Aborting process on rank 1 due to error - nccl hit async error: internal error",
                              "what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"}) {
    aborted.failure.set_message(message);
    EXPECT_EQ(Classify(aborted), FailureClass::kPeerError) << message;
  }
  aborted.failure.set_message("Aborting process on rank 1 due to CUDA error: an illegal memory access");
  EXPECT_EQ(Classify(aborted), FailureClass::kUnclear);
}

TEST(Classify, OtherConnection_Failed_IsNoPeerError) {
  EXPECT_EQ(Classify(Exited("OperationalError: Lost connection with MySQL server", absl::ZeroDuration())),
            FailureClass::kOwnError);
}

TEST(Classify, PortInUse_IsNoPeerError) {
  EXPECT_EQ(Classify(Exited("torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
                            "network address. port: 29500, code: -98, name: EADDRINUSE",
                            absl::ZeroDuration())),
            FailureClass::kOwnError);
}

TEST(Classify, LastLineOfStderr_IsNoEvidence) {
  EXPECT_EQ(Classify(Exited("sh: foo: not found")), FailureClass::kOwnError);
  EXPECT_EQ(Classify(Exited("last line of stderr: step 3")), FailureClass::kUnclear);
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

TEST(ChooseFirstCause, SameKind_EarlierTimestampWins) {
  const auto exited = [](const char* message, int seconds) { return Exited(message, absl::Seconds(seconds)); };
  const struct {
    const char* what;
    std::vector<FailureEvidence> evidence;
    size_t cause;
  } kCases[] = {
      {"earlier", {exited("A", 1), exited("B", 3), exited("C", 2)}, 1},
      {"equals keep their order", {Exited("A"), Exited("B")}, 0},
      {"equals keep their order", {Killed(SIGSEGV), Killed(SIGKILL)}, 0},
      {"equals keep their order", {exited("A", 1), exited("B", 1)}, 0},
      {"an error well before a crash", {Killed(SIGSEGV), exited("ValueError: x", 5)}, 1},
      {"an error well before a crash", {Killed(SIGSEGV), exited("B", 5), exited("C", 9)}, 2},
      // Error files have whole seconds.
      {"an error within the same second", {Killed(SIGSEGV), exited("ValueError: x", 0)}, 0},
      {"a lost peer", {Killed(SIGSEGV), exited("Connection reset by peer", 5)}, 0},
      {"out of memory", {exited("ValueError: x", 5), OutOfMemory()}, 1},
      {"one is the cause whatever it is", {StoppedByUs(Killed(SIGKILL))}, 0},
  };
  for (const auto& [what, evidence, cause] : kCases) EXPECT_EQ(ChooseFirstCause(evidence), cause) << what;
}

}  // namespace
}  // namespace ddprun::launcher
