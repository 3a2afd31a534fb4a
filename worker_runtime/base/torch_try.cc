#include "worker_runtime/base/torch_try.h"

#include <c10/util/Exception.h>

#include <exception>
#include <initializer_list>
#include <new>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxErrorBytes = 2000;

bool HasOneOf(absl::string_view text, std::initializer_list<absl::string_view> words) {
  for (absl::string_view word : words) {
    if (absl::StrContains(text, word)) return true;
  }
  return false;
}

// Maps exceptions whose type is not specific: Gloo's are plain runtime errors, and most of LibTorch's are plain
// c10::Error.
absl::StatusCode CodeOfText(absl::string_view text) {
  if (HasOneOf(text, {"Timed out", "timed out", "imeout after", "timeout"})) return absl::StatusCode::kDeadlineExceeded;
  // Under TORCH_DISTRIBUTED_DEBUG=DETAIL, LibTorch's message does not tell a rank that died from one that is late.
  if (HasOneOf(text, {"monitoredBarrier", "Connection closed", "Connection reset", "Connection refused",
                      "Connection was likely closed", "Broken pipe", "Read error", "Write error",
                      "Socket is not connected", "Transport endpoint is not connected", "Failed to connect"})) {
    return absl::StatusCode::kUnavailable;
  }
  // The messages of c10d's argument checks begin with the name of the method.
  if (HasOneOf(text, {"Invalid scalar type", "ProcessGroupGloo::", "ReduceOp", "nvalid argument", "must be", "expected",
                      "Expected", "shape", "size of tensor"})) {
    return absl::StatusCode::kInvalidArgument;
  }
  return absl::StatusCode::kInternal;
}

// Maps NCCL's results to codes. A rank that NCCL lost is a lost connection, whatever the rest of the message says; c10d
// explains every result at length, so single words are misleading.
absl::StatusCode CodeOfNccl(absl::string_view text) {
  if (HasOneOf(text, {"timeout", "timed out", "timing out"})) return absl::StatusCode::kDeadlineExceeded;
  if (HasOneOf(text, {"ncclInvalidArgument", "ncclInvalidUsage"})) return absl::StatusCode::kInvalidArgument;
  if (HasOneOf(text, {"ncclUnhandledCudaError"})) return absl::StatusCode::kInternal;
  return absl::StatusCode::kUnavailable;
}

absl::StatusCode CodeOf(const c10::Error& error, absl::string_view text) {
  const auto is = [&error]<typename Type>(Type*) { return dynamic_cast<const Type*>(&error) != nullptr; };
  if (is(static_cast<c10::OutOfMemoryError*>(nullptr))) return absl::StatusCode::kResourceExhausted;
  if (is(static_cast<c10::IndexError*>(nullptr)) || is(static_cast<c10::ValueError*>(nullptr)) ||
      is(static_cast<c10::TypeError*>(nullptr)) || is(static_cast<c10::NotImplementedError*>(nullptr))) {
    return absl::StatusCode::kInvalidArgument;
  }
  if (is(static_cast<c10::DistBackendError*>(nullptr)) && HasOneOf(text, {"NCCL", "nccl"})) return CodeOfNccl(text);
  const absl::StatusCode code = CodeOfText(text);
  // These come from sockets, never from the caller's arguments.
  if (is(static_cast<c10::DistNetworkError*>(nullptr)) || is(static_cast<c10::DistStoreError*>(nullptr))) {
    return code == absl::StatusCode::kDeadlineExceeded ? code : absl::StatusCode::kUnavailable;
  }
  return code;
}

absl::Status Error(absl::StatusCode code, absl::string_view operation, absl::string_view text) {
  const std::string line = OneLine(text, kMaxErrorBytes);
  return absl::Status(code, operation.empty() ? line : absl::StrCat(operation, ": ", line));
}

}  // namespace

absl::Status TorchTry(absl::string_view operation, absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    const char* const text = error.what_without_backtrace();
    return Error(CodeOf(error, text), operation, text);
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kResourceExhausted, operation, "out of memory");
  } catch (const std::exception& error) {
    return Error(CodeOfText(error.what()), operation, error.what());
  } catch (...) {
    return Error(absl::StatusCode::kInternal, operation, "threw an exception that is not a std::exception");
  }
}

void ThrowIfError(const absl::Status& status) {
  if (status.ok()) return;
  const std::string text(status.message());
  if (absl::IsDeadlineExceeded(status)) C10_THROW_ERROR(DistStoreError, absl::StrCat("timed out: ", text));
  if (absl::IsUnavailable(status)) C10_THROW_ERROR(DistNetworkError, text);
  TORCH_CHECK_VALUE(!absl::IsInvalidArgument(status), text);
  TORCH_CHECK(false, text);
}

}  // namespace ddprun
