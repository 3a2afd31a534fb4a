#include "rendezvous/wire/envelope.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/unknown_field_set.h"
#include "rendezvous/core/validate.h"

namespace ddprun::rendezvous {
namespace {

absl::Status UnknownKind(const google::protobuf::Message& message) {
  const google::protobuf::UnknownFieldSet& unknown = message.GetReflection()->GetUnknownFields(message);
  if (unknown.empty()) return absl::InvalidArgumentError("message: is missing");
  return absl::UnimplementedError(absl::StrCat("message: unknown field ", unknown.field(0).number()));
}

struct Put {
  v1::LauncherMessage* launcher = nullptr;
  v1::ServerMessage* server = nullptr;

  void operator()(Join& m) const {
    m.clear_origin();
    *launcher->mutable_join() = std::move(m);
  }
  void operator()(Heartbeat& m) const { *launcher->mutable_heartbeat() = std::move(m); }
  void operator()(WorkerFailed& m) const { *launcher->mutable_worker_failed() = std::move(m); }
  void operator()(GroupSucceeded& m) const { *launcher->mutable_group_succeeded() = std::move(m); }
  void operator()(Ready& m) const { *launcher->mutable_ready() = std::move(m); }
  void operator()(Leave& m) const { *launcher->mutable_leave() = std::move(m); }
  void operator()(Progress& m) const { *launcher->mutable_progress() = std::move(m); }
  void operator()(Inspection& m) const { *launcher->mutable_inspection() = std::move(m); }
  void operator()(Hang& m) const { *(launcher ? launcher->mutable_hang() : server->mutable_hang()) = std::move(m); }

  void operator()(Welcome& m) const { *server->mutable_welcome() = std::move(m); }
  void operator()(HeartbeatAck& m) const { *server->mutable_heartbeat_ack() = std::move(m); }
  void operator()(Waiting& m) const { *server->mutable_waiting() = std::move(m); }
  void operator()(Assign& m) const { *server->mutable_assign() = std::move(m); }
  void operator()(StopRound& m) const { *server->mutable_stop_round() = std::move(m); }
  void operator()(Finish& m) const { *server->mutable_finish() = std::move(m); }
  void operator()(Rejected& m) const { *server->mutable_rejected() = std::move(m); }
  void operator()(ExcludedFromRound& m) const { *server->mutable_excluded_from_round() = std::move(m); }
  void operator()(Inspect& m) const { *server->mutable_inspect() = std::move(m); }
};

template <typename Message>
absl::StatusOr<Message> Validated(Message message) {
  DDPRUN_RETURN_IF_ERROR(Validate(&message));
  return message;
}

}  // namespace

v1::LauncherMessage ToProto(LauncherMessage message) {
  FitTexts(&message);
  v1::LauncherMessage proto;
  std::visit(Put{.launcher = &proto}, message);
  return proto;
}

v1::ServerMessage ToProto(ServerMessage message) {
  FitTexts(&message);
  v1::ServerMessage proto;
  std::visit(Put{.server = &proto}, message);
  return proto;
}

absl::StatusOr<LauncherMessage> FromProto(v1::LauncherMessage proto) {
  using Wire = v1::LauncherMessage;
  switch (proto.message_case()) {
    case Wire::kJoin:
      if (proto.join().has_origin()) return absl::InvalidArgumentError("join.origin: is set by the server only");
      return Validated<LauncherMessage>(std::move(*proto.mutable_join()));
    case Wire::kHeartbeat: return Validated<LauncherMessage>(Heartbeat());
    case Wire::kWorkerFailed: return Validated<LauncherMessage>(std::move(*proto.mutable_worker_failed()));
    case Wire::kGroupSucceeded: return Validated<LauncherMessage>(std::move(*proto.mutable_group_succeeded()));
    case Wire::kReady: return Validated<LauncherMessage>(std::move(*proto.mutable_ready()));
    case Wire::kLeave: return Validated<LauncherMessage>(std::move(*proto.mutable_leave()));
    case Wire::kProgress: return Validated<LauncherMessage>(std::move(*proto.mutable_progress()));
    case Wire::kHang: return Validated<LauncherMessage>(std::move(*proto.mutable_hang()));
    case Wire::kInspection: return Validated<LauncherMessage>(std::move(*proto.mutable_inspection()));
    case Wire::MESSAGE_NOT_SET: break;
  }
  return UnknownKind(proto);
}

absl::StatusOr<ServerMessage> FromProto(v1::ServerMessage proto) {
  using Wire = v1::ServerMessage;
  switch (proto.message_case()) {
    case Wire::kWelcome: return Validated<ServerMessage>(std::move(*proto.mutable_welcome()));
    case Wire::kHeartbeatAck: return Validated<ServerMessage>(HeartbeatAck());
    case Wire::kWaiting: return Validated<ServerMessage>(std::move(*proto.mutable_waiting()));
    case Wire::kAssign: return Validated<ServerMessage>(std::move(*proto.mutable_assign()));
    case Wire::kStopRound: return Validated<ServerMessage>(std::move(*proto.mutable_stop_round()));
    case Wire::kFinish: return Validated<ServerMessage>(std::move(*proto.mutable_finish()));
    case Wire::kRejected: return Validated<ServerMessage>(std::move(*proto.mutable_rejected()));
    case Wire::kExcludedFromRound: return Validated<ServerMessage>(std::move(*proto.mutable_excluded_from_round()));
    case Wire::kHang: return Validated<ServerMessage>(std::move(*proto.mutable_hang()));
    case Wire::kInspect: return Validated<ServerMessage>(std::move(*proto.mutable_inspect()));
    case Wire::MESSAGE_NOT_SET: break;
  }
  return UnknownKind(proto);
}

}  // namespace ddprun::rendezvous
