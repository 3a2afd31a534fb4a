#include "rendezvous/wire/byte_buffer.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/log.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kOtherGrpcThreads = 7;
constexpr absl::Duration kFlushTime = absl::Milliseconds(500);

// gRPC logs every broken connection as an error. Only two of its messages are worth a line of ours.
void LogOfGrpc(absl::string_view message) {
  if (absl::StrContains(message, strerror(EMFILE)) || absl::StrContains(message, strerror(ENFILE))) {
    ReportOutOfFiles();
  }
  const bool fatal = absl::StartsWith(message, "assertion failed");  // abort() follows
  Log(fatal ? LogLevel::kError : LogLevel::kDebug, absl::StrCat("grpc: ", message));
  if (fatal) FlushLog(SteadyNow() + kFlushTime);
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status ParseByteBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  message->Clear();
  if (!buffer.Valid() || buffer.Length() == 0) return absl::OkStatus();  // all fields have their defaults
  if (buffer.Length() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message too large: ", buffer.Length(), " bytes, limit ", kMaxMessageBytes));
  }
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok() ||
      !message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("malformed message: not a ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status PrepareGrpc() {
  static const absl::Status& status = *new absl::Status([] {
    gpr_set_log_function([](gpr_log_func_args* args) { LogOfGrpc(args->message); });
    google::protobuf::SetLogHandler([](google::protobuf::LogLevel level, const char*, int, const std::string& message) {
      const bool fatal = level == google::protobuf::LOGLEVEL_FATAL;  // the program ends after it
      Log(fatal ? LogLevel::kError : LogLevel::kDebug, absl::StrCat("protobuf: ", message));
    });
    // gRPC starts one thread for each processor, within these bounds, and some others.
    return CheckThreads(kOtherGrpcThreads + std::clamp<int>(std::thread::hardware_concurrency(), 2, 32));
  }());
  return status;
}

}  // namespace ddprun::rendezvous
