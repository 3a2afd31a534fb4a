#include "launcher/hosts/frames.h"

#include <cstdint>

namespace ddprun::launcher {
namespace {

constexpr size_t kLengthBytes = 4;

}  // namespace

void AppendFrame(const google::protobuf::MessageLite& message, std::string* bytes) {
  const size_t size = message.ByteSizeLong();
  for (int shift = 24; shift >= 0; shift -= 8) bytes->push_back(static_cast<char>(size >> shift));
  message.AppendToString(bytes);
}

std::optional<std::string> TakeFrame(std::string* bytes, bool* error) {
  if (bytes->size() < kLengthBytes) return std::nullopt;
  size_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) size = size << 8 | static_cast<uint8_t>((*bytes)[i]);
  if (size > kMaxFrameBytes) {
    *error = true;
    return std::nullopt;
  }
  if (bytes->size() < kLengthBytes + size) return std::nullopt;
  std::string frame = bytes->substr(kLengthBytes, size);
  bytes->erase(0, kLengthBytes + size);
  return frame;
}

}  // namespace ddprun::launcher
