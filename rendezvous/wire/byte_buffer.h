#ifndef DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_
#define DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"

// Messages on streams are handled as bytes: gRPC's own parsing reports a malformed message as the end of the stream.
// Thread-safe.
namespace ddprun::rendezvous {

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);

// INVALID_ARGUMENT: more than kMaxMessageBytes, or not a message of this type.
absl::Status ParseByteBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

// Converts the status with its code and message.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Limit that gRPC enforces on a received message before it is passed on.
inline constexpr int kMaxReceivedBytes = 256 * 1024;

// Redirects the output of gRPC and protobuf from stderr to our log, at level kDebug. Call before using gRPC; later
// calls do nothing. ResourceExhausted: the threads of gRPC can't be started, without which it aborts or hangs.
absl::Status PrepareGrpc();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_
