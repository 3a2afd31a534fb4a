#include "worker_runtime/extras/metrics/event_record.h"

#include <array>
#include <bit>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) * 0x82f63b78u);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

// Masking avoids problems with a CRC of bytes that contain CRCs.
uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// ---- protobuf's encoding: https://protobuf.dev/programming-guides/encoding ----

enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

std::string Key(int field, Wire wire) { return Varint(field << 3 | static_cast<int>(wire)); }
std::string Integer(int field, int64_t value) {
  return Key(field, Wire::kVarint) + Varint(static_cast<uint64_t>(value));
}
std::string Float(int field, float value) {
  return Key(field, Wire::kFixed32) + LittleEndian(std::bit_cast<uint32_t>(value), 4);
}
std::string Double(int field, double value) {
  return Key(field, Wire::kFixed64) + LittleEndian(std::bit_cast<uint64_t>(value), 8);
}
// Encodes a string or a message.
std::string Bytes(int field, absl::string_view value) {
  return absl::StrCat(Key(field, Wire::kBytes), Varint(value.size()), value);
}

std::string WallTime(absl::Time time) { return Double(1, absl::ToDoubleSeconds(time - absl::UnixEpoch())); }

}  // namespace

std::string FileVersionEvent(absl::Time time) { return WallTime(time) + Bytes(3, "brain.Event:2"); }

std::string SessionStartEvent(absl::Time time, int64_t step) {
  return WallTime(time) + Integer(2, step) + Bytes(7, Integer(1, 1));
}

std::string ScalarsEvent(absl::Time time, int64_t step, const std::map<std::string, double>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) summary += Bytes(1, Bytes(1, tag) + Float(2, static_cast<float>(value)));
  return WallTime(time) + Integer(2, step) + Bytes(5, summary);
}

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string TfRecord(absl::string_view data) {
  const std::string length = LittleEndian(data.size(), 8);
  return absl::StrCat(length, LittleEndian(Masked(Crc32c(length)), 4), data, LittleEndian(Masked(Crc32c(data)), 4));
}

}  // namespace ddprun
