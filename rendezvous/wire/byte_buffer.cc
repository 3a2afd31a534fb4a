#include "rendezvous/wire/byte_buffer.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/support/slice.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/log.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {

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
        absl::StrCat("a message has ", buffer.Length(), " bytes, more than ", kMaxMessageBytes));
  }
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok() ||
      !message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("a message is not a ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

void QuietGrpc() {
  static const bool done = [] {
    gpr_set_log_function([](gpr_log_func_args* args) { Log(LogLevel::kDebug, absl::StrCat("grpc: ", args->message)); });
    google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& message) {
      Log(LogLevel::kDebug, absl::StrCat("protobuf: ", message));
    });
    return true;
  }();
  (void)done;
}

}  // namespace ddprun::rendezvous
