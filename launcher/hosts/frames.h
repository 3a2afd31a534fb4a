#ifndef DDPRUN_LAUNCHER_HOSTS_FRAMES_H_
#define DDPRUN_LAUNCHER_HOSTS_FRAMES_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

// PURE. Messages in a stream of bytes: each after its length, 4 bytes, the highest first.
namespace ddprun::launcher {

inline constexpr size_t kMaxFrameBytes = 64 << 20;

// Appends `message` to `bytes`.
void AppendFrame(const google::protobuf::MessageLite& message, std::string* bytes);

// Takes the first message from the front of `bytes`. Absent: it is not complete yet. `error` is set if the bytes are no
// messages; nothing can be read after that.
std::optional<std::string> TakeFrame(std::string* bytes, bool* error);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_FRAMES_H_
