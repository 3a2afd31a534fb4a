#ifndef DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_
#define DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"

// Messages on streams are handled as bytes, because gRPC's own parsing tells a malformed message from the end of
// the stream by nothing. Thread-safe.
namespace ddprun::rendezvous {

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);

// INVALID_ARGUMENT: more than kMaxMessageBytes, or not a message of this type.
absl::Status ParseByteBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

// The same code and text.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The most that gRPC itself takes in for a message, before any of our code sees it.
inline constexpr int kMaxReceivedBytes = 256 * 1024;

// Sends what gRPC and protobuf would print to stderr to our log, as kDebug. Call before using gRPC; later calls do
// nothing.
void QuietGrpc();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_
