#include "worker_runtime/extras/summary_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/stream_writer.h"

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

// ---- SummaryWriter ----

absl::StatusOr<std::unique_ptr<SummaryWriter>> SummaryWriter::Create(std::function<int()> rank,
                                                                     SummaryWriterOptions options) {
  std::unique_ptr<SummaryWriter> writer(new SummaryWriter(std::move(rank), std::move(options)));
  if (writer->rank_() != 0) return writer;
  DDPRUN_RETURN_IF_ERROR(writer->Open());
  if (writer->options_.purge_step.has_value()) {
    DDPRUN_RETURN_IF_ERROR(writer->Write(SessionStartEvent(absl::Now(), *writer->options_.purge_step)));
  }
  return writer;
}

absl::Status SummaryWriter::Open() {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("can't create the folder ", options_.folder));
  const absl::Time now = absl::Now();
  // Ten digits: TensorBoard reads the files in the order of their names.
  path_ = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", options_.folder, absl::ToUnixSeconds(now), Hostname(),
                          getpid());
  // Appends: another writer of this process may have created the file in the same second.
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("can't create ", path_));
  return Write(FileVersionEvent(now));
}

SummaryWriter::~SummaryWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SummaryWriter::AddScalar(const std::string& tag, double value, int64_t step) {
  return AddScalars({{tag, value}}, step);
}

absl::Status SummaryWriter::AddScalars(const std::map<std::string, double>& values, int64_t step) {
  if (rank_() != 0) return absl::OkStatus();
  if (fd_ < 0) DDPRUN_RETURN_IF_ERROR(Open());
  return Write(ScalarsEvent(absl::Now(), step, values));
}

absl::Status SummaryWriter::Write(const std::string& event) {
  const int error = WriteAll(fd_, TfRecord(event));
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, absl::StrCat("can't write ", path_));
}

}  // namespace ddprun
