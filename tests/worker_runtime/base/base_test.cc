#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "launcher/report/error_file_format.h"
#include "tests/testing/process.h"
#include "worker_runtime/base/last_words.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Exception>
absl::Status Thrown(const Exception& exception) {
  return TorchTry("step", [&]() -> absl::Status { throw exception; });
}

TEST(TorchTry, TorchTry_NoException_ReturnsTheBodysStatus) {
  EXPECT_EQ(TorchTry("step", [] { return absl::OkStatus(); }), absl::OkStatus());
  EXPECT_EQ(TorchTry("step", [] { return absl::DataLossError("x"); }), absl::DataLossError("x"));
}

TEST(TorchTry, TorchTry_TorchCheckFails_ErrorIsOneLine) {
  const absl::Status status = TorchTry("forward", []() -> absl::Status {
    at::full({2, 3}, 1.0).matmul(at::full({2, 3}, 1.0));
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  // Since 2.15, the operator's name precedes it.
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("forward: "), HasSubstr("mat1 and mat2 shapes cannot be multiplied")));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  EXPECT_EQ(status.message().find("frame #"), absl::string_view::npos);
}

TEST(TorchTry, TorchTry_AnyException_HasTheCodeOfItsKind) {
  const c10::SourceLocation here = {"f", "file", 1};
  EXPECT_EQ(Thrown(c10::IndexError(here, "no 5")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Thrown(c10::ValueError(here, "bad")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Thrown(c10::OutOfMemoryError(here, "CUDA")).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Thrown(c10::DistNetworkError(here, "Broken pipe")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Thrown(c10::DistStoreError(here, "wait timeout after 5ms, keys: /a")).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Thrown(std::runtime_error("[gloo/pair.cc:5] Connection closed by peer [1.2.3.4]:5")).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Thrown(std::runtime_error("[gloo/x.cc:5] Timed out waiting 5ms for recv")).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Thrown(std::runtime_error("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 9 ms")).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Thrown(std::runtime_error("odd")).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Thrown(std::bad_alloc()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Thrown(5).code(), absl::StatusCode::kInternal);
}

TEST(TorchTry, TorchTry_ErrorOfNccl_HasTheCodeOfItsResult) {
  const auto code = [](const std::string& text) {
    return TorchTry("", [&]() -> absl::Status { C10_THROW_ERROR(DistBackendError, text); }).code();
  };
  const std::string where = "NCCL error in: ProcessGroupNCCL.cpp:3690, NCCL version 2.28.9\n";
  EXPECT_EQ(code(where + "ncclRemoteError: A call failed possibly due to a network error"),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(where + "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("NCCL communicator was aborted on rank 1."), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("NCCL timeout when waiting for nonblocking call to become successful."),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 60012 milliseconds "
                 "before timing out."),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code(where + "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(where + "ncclUnhandledCudaError: Call to CUDA function failed."), absl::StatusCode::kInternal);
}

TEST(TorchTry, ThrowIfError_AnyStatus_RoundTrips) {
  for (const absl::Status& status : {absl::OkStatus(), absl::UnavailableError("lost rank 1"),
                                     absl::InvalidArgumentError("step is -1"), absl::InternalError("bad")}) {
    EXPECT_EQ(TorchTry("",
                       [&] {
                         ThrowIfError(status);
                         return absl::OkStatus();
                       }),
              status);
  }
  EXPECT_EQ(TorchTry("",
                     [] {
                       ThrowIfError(absl::DeadlineExceededError("rank 1 is late"));
                       return absl::OkStatus();
                     }),
            absl::DeadlineExceededError("timed out: rank 1 is late"));
}

TEST(ErrorReport, ReportWorkerError_AnyError_WritesOneLineAndTheFile) {
  TempDir folder;
  ::testing::internal::CaptureStderr();
  ReportWorkerError(3, folder.File("error.json"), absl::InternalError("two\nlines"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "rank 3: two lines\n");
  EXPECT_EQ(launcher::ParseErrorFile(ReadFile(folder.File("error.json"))).message, "rank 3: two lines");
}

TEST(ErrorReport, ReportWorkerError_UnwritableFile_StillWritesTheLine) {
  ::testing::internal::CaptureStderr();
  ReportWorkerError(0, "/no/such/folder/error.json", absl::InternalError("rank 0: said once"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "rank 0: said once\n");
}

}  // namespace
}  // namespace ddprun::testing
