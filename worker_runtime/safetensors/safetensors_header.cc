#include "worker_runtime/safetensors/safetensors_header.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "worker_runtime/safetensors/checksum.h"

namespace ddprun {
namespace {

struct DtypeRow {
  SafetensorsDtype dtype;
  const char* name;
  uint64_t bytes;
};

constexpr DtypeRow kDtypes[] = {
    {SafetensorsDtype::kF64, "F64", 8},
    {SafetensorsDtype::kF32, "F32", 4},
    {SafetensorsDtype::kF16, "F16", 2},
    {SafetensorsDtype::kBF16, "BF16", 2},
    {SafetensorsDtype::kI64, "I64", 8},
    {SafetensorsDtype::kI32, "I32", 4},
    {SafetensorsDtype::kI16, "I16", 2},
    {SafetensorsDtype::kI8, "I8", 1},
    {SafetensorsDtype::kU64, "U64", 8},
    {SafetensorsDtype::kU32, "U32", 4},
    {SafetensorsDtype::kU16, "U16", 2},
    {SafetensorsDtype::kU8, "U8", 1},
    {SafetensorsDtype::kBool, "BOOL", 1},
    {SafetensorsDtype::kC64, "C64", 8},
    {SafetensorsDtype::kF8E4M3, "F8_E4M3", 1},
    {SafetensorsDtype::kF8E5M2, "F8_E5M2", 1},
    {SafetensorsDtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 1},
    {SafetensorsDtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 1},
    {SafetensorsDtype::kF8E8M0, "F8_E8M0", 1},
};

constexpr char kMetadataKey[] = "__metadata__";
// Above the dimensions of any real tensor, so that a hostile shape is rejected early.
constexpr size_t kMaxDimensions = 64;
// Limit on text of the file that is quoted in an error.
constexpr size_t kMaxShownName = 120;

std::string Shown(absl::string_view name) { return absl::StrCat("\"", OneLine(name, kMaxShownName), "\""); }

absl::Status Damaged(absl::string_view file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file, " is not a valid safetensors file: ", what));
}

// Bytes of a tensor of this shape; nullopt on overflow or if a size is negative.
std::optional<uint64_t> BytesOf(SafetensorsDtype dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = SafetensorsDtypeBytes(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  }
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return bytes;
}

auto PlaceInFile(const SafetensorsTensor& tensor) { return std::tie(tensor.begin, tensor.end, tensor.name); }

// Builds the header while the text is parsed, so that nothing is allocated for values that the format does not have,
// regardless of nesting.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected("fraction"); }
  bool binary(binary_t&) override { return Unexpected("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (tensor_.shape.size() == kMaxDimensions) return Fail("it has too many dimensions");
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Fail("a dimension is too large");
      tensor_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ != Place::kOffsets) return Unexpected("number");
    if (offsets_ == 2) return Fail("data_offsets must have two entries");
    (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!metadata.emplace(key_, value).second) return Fail("duplicate");
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return Unexpected("string");
    const std::optional<SafetensorsDtype> dtype = SafetensorsDtypeFromName(value);
    if (!dtype) return Fail(absl::StrCat("unknown dtype ", Shown(value)));
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return Enter(Place::kTop);
    if (place_ != Place::kTop) return Unexpected("object");
    if (top_key_ == kMetadataKey) return Enter(Place::kMetadata);
    tensor_ = SafetensorsTensor();
    tensor_.name = top_key_;
    offsets_ = 0;
    seen_ = 0;
    return Enter(Place::kTensor);
  }

  bool end_object() override {
    if (place_ == Place::kTop) return Enter(Place::kEnd);
    if (place_ == Place::kTensor) {
      if (seen_ != kDtypeSeen + kShapeSeen + kOffsetsSeen) return Fail("dtype, shape or data_offsets is missing");
      tensors.push_back(std::move(tensor_));
    }
    return Enter(Place::kTop);
  }

  bool key(string_t& value) override {
    if (place_ == Place::kTop) {
      top_key_ = value;
      key_.clear();
      return true;
    }
    key_ = value;
    if (place_ != Place::kTensor) return true;
    const int bit = value == "dtype" ? kDtypeSeen : value == "shape" ? kShapeSeen : kOffsetsSeen;
    if (bit == kOffsetsSeen && value != "data_offsets") return Fail(absl::StrCat("unknown entry ", Shown(value)));
    if (seen_ & bit) return Fail(absl::StrCat("it has ", Shown(value), " twice"));
    seen_ |= bit;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") return Unexpected("list");
    return Enter(key_ == "shape" ? Place::kShape : Place::kOffsets);
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) return Fail("data_offsets must have two entries");
    return Enter(Place::kTensor);
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = absl::StrCat("the header's JSON is broken at byte ", position);
    return false;
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum : int { kDtypeSeen = 1, kShapeSeen = 2, kOffsetsSeen = 4 };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }
  bool Fail(absl::string_view what) {
    error = place_ == Place::kStart      ? std::string(what)
            : place_ == Place::kMetadata ? absl::StrCat("metadata ", Shown(key_), ": ", what)
                                         : absl::StrCat("tensor ", Shown(top_key_), ": ", what);
    return false;
  }
  bool Unexpected(absl::string_view what) {
    if (place_ == Place::kStart) return Fail("the header is not a JSON object");
    return Fail(absl::StrCat("unexpected ", what));
  }

  Place place_ = Place::kStart;
  std::string top_key_;
  std::string key_;
  SafetensorsTensor tensor_;
  int offsets_ = 0;
  int seen_ = 0;
};

// Nullopt if the tensors are contiguous and fill the data.
std::optional<std::string> FirstMisfit(const std::vector<SafetensorsTensor>& tensors, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const auto say = [&](absl::string_view what) { return absl::StrCat("tensor ", Shown(tensor.name), ": ", what); };
    if (tensor.begin > tensor.end) return say("it ends before it begins");
    if (tensor.end > data_bytes) {
      return say(absl::StrCat("it ends at byte ", tensor.end, " of ", data_bytes, " bytes of data (truncated file?)"));
    }
    const std::optional<uint64_t> bytes = BytesOf(tensor.dtype, tensor.shape);
    if (!bytes) return say("its shape is too large");
    if (*bytes != tensor.bytes()) {
      return say(absl::StrCat("it has ", tensor.bytes(), " bytes where its shape and dtype need ", *bytes));
    }
    if (tensor.begin != end) return say(tensor.begin < end ? "it overlaps another" : "there is a gap before it");
    end = tensor.end;
  }
  if (end != data_bytes) {
    return absl::StrCat("the tensors end at byte ", end, " of ", data_bytes, " bytes of data");
  }
  return std::nullopt;
}

std::optional<std::string> FirstDuplicate(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<absl::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return std::nullopt;
  return absl::StrCat("duplicate tensor ", Shown(*twice));
}

constexpr char kTensorKey[] = "ddprun.tensor_xxh3";
constexpr char kHeaderKey[] = "ddprun.header_xxh3";
// The field as it appears in the text. A string inside the JSON can't contain it, as its quotation marks are escaped.
constexpr char kHeaderField[] = "\"ddprun.header_xxh3\":\"";

std::string Zeros() { return std::string(kChecksumTextBytes, '0'); }

absl::Status DamagedSeal(absl::string_view file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file, " is damaged: ", what));
}

}  // namespace

absl::string_view SafetensorsDtypeName(SafetensorsDtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::optional<SafetensorsDtype> SafetensorsDtypeFromName(absl::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

uint64_t SafetensorsDtypeBytes(SafetensorsDtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bytes; }

const SafetensorsTensor* SafetensorsHeader::Find(absl::string_view name) const {
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<SafetensorsHeader> LayOutSafetensors(std::vector<SafetensorsTensor> tensors,
                                                    std::map<std::string, std::string> metadata) {
  if (const std::optional<std::string> twice = FirstDuplicate(tensors)) return absl::InvalidArgumentError(*twice);
  std::sort(tensors.begin(), tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    const uint64_t a_bytes = SafetensorsDtypeBytes(a.dtype);
    const uint64_t b_bytes = SafetensorsDtypeBytes(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  uint64_t end = 0;
  for (SafetensorsTensor& tensor : tensors) {
    if (tensor.name == kMetadataKey) {
      return absl::InvalidArgumentError(absl::StrCat("a tensor can't be named ", kMetadataKey));
    }
    const std::optional<uint64_t> bytes = BytesOf(tensor.dtype, tensor.shape);
    tensor.begin = end;
    if (!bytes || __builtin_add_overflow(end, *bytes, &end)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Shown(tensor.name), " has an invalid shape"));
    }
    tensor.end = end;
  }
  SafetensorsHeader header;
  header.tensors = std::move(tensors);
  header.metadata = std::move(metadata);
  // Empty tensors share their position with the next one; readers order them by name.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return PlaceInFile(a) < PlaceInFile(b); });
  return header;
}

std::string SafetensorsHeaderText(const SafetensorsHeader& header) {
  nlohmann::json json = nlohmann::json::object();
  if (!header.metadata.empty()) json[kMetadataKey] = header.metadata;
  for (const SafetensorsTensor& tensor : header.tensors) {
    json[tensor.name] = {{"dtype", std::string(SafetensorsDtypeName(tensor.dtype))},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  // Invalid UTF-8 is replaced, because it would make the file unreadable.
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  while ((kSafetensorsPrefixBytes + text.size()) % kSafetensorsDataAlignment != 0) text.push_back(' ');
  return text;
}

std::string SafetensorsPrefix(uint64_t text_bytes) {
  std::string prefix;
  for (uint64_t byte = 0; byte < kSafetensorsPrefixBytes; ++byte) {
    prefix.push_back(static_cast<char>((text_bytes >> (8 * byte)) & 0xff));
  }
  return prefix;
}

absl::StatusOr<uint64_t> SafetensorsTextBytes(absl::string_view file, absl::string_view prefix, uint64_t file_bytes) {
  if (prefix.size() < kSafetensorsPrefixBytes || file_bytes < kSafetensorsPrefixBytes) {
    return Damaged(file, absl::StrCat("it has only ", file_bytes, " bytes"));
  }
  uint64_t length = 0;
  for (uint64_t byte = 0; byte < kSafetensorsPrefixBytes; ++byte) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(prefix[byte])) << (8 * byte);
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    return Damaged(file, absl::StrCat("its header would have ", length, " bytes, limit ", kMaxSafetensorsHeaderBytes));
  }
  if (length > file_bytes - kSafetensorsPrefixBytes) {
    return Damaged(file, absl::StrCat("its header of ", length, " bytes is truncated after ",
                                      file_bytes - kSafetensorsPrefixBytes));
  }
  if (length < 2) return Damaged(file, "its header is empty");
  return length;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view file, absl::string_view text,
                                                         uint64_t file_bytes) {
  const uint64_t data_begin = kSafetensorsPrefixBytes + text.size();
  if (data_begin > file_bytes) return Damaged(file, "it is shorter than its header");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &reader)) return Damaged(file, reader.error);
  if (const std::optional<std::string> twice = FirstDuplicate(reader.tensors)) return Damaged(file, *twice);
  SafetensorsHeader header;
  header.tensors = std::move(reader.tensors);
  header.metadata = std::move(reader.metadata);
  header.data_begin = data_begin;
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return PlaceInFile(a) < PlaceInFile(b); });
  if (const std::optional<std::string> misfit = FirstMisfit(header.tensors, file_bytes - data_begin)) {
    return Damaged(file, *misfit);
  }
  return header;
}

std::string SealHeader(SafetensorsHeader header, absl::Span<const uint64_t> tensor_checksums) {
  std::string all;
  for (const uint64_t checksum : tensor_checksums) absl::StrAppend(&all, ChecksumText(checksum));
  header.metadata[kTensorKey] = all;
  header.metadata[kHeaderKey] = Zeros();
  std::string text = SafetensorsHeaderText(header);
  const size_t place = text.find(kHeaderField) + sizeof(kHeaderField) - 1;
  text.replace(place, kChecksumTextBytes, ChecksumText(Checksum(text)));
  return text;
}

absl::StatusOr<std::optional<Seal>> ReadSeal(absl::string_view file, absl::string_view text,
                                             const SafetensorsHeader& header) {
  const auto stated = header.metadata.find(kHeaderKey);
  if (stated == header.metadata.end()) {
    // A flipped bit in the key must not make a file of this library pass for another program's.
    for (const auto& [key, value] : header.metadata) {
      if (absl::StartsWith(key, "ddprun.")) return DamagedSeal(file, "its header has no checksum");
    }
    return std::optional<Seal>();
  }
  const size_t field = text.find(kHeaderField);
  if (field == absl::string_view::npos) return DamagedSeal(file, "its header was written by another program");
  std::string zeroed(text);
  const size_t place = field + sizeof(kHeaderField) - 1;
  if (place + kChecksumTextBytes > zeroed.size()) return DamagedSeal(file, "its header checksum is truncated");
  zeroed.replace(place, kChecksumTextBytes, Zeros());
  if (stated->second != ChecksumText(Checksum(zeroed))) return DamagedSeal(file, "header checksum mismatch");

  const auto all = header.metadata.find(kTensorKey);
  if (all == header.metadata.end() || all->second.size() != header.tensors.size() * kChecksumTextBytes) {
    return DamagedSeal(file, "it does not have one checksum per tensor");
  }
  Seal seal;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const absl::string_view digits = absl::string_view(all->second).substr(i * kChecksumTextBytes, kChecksumTextBytes);
    const std::optional<uint64_t> checksum = ChecksumFromText(digits);
    if (!checksum) return DamagedSeal(file, "a tensor checksum is not a number");
    seal.tensor_checksums.push_back(*checksum);
  }
  return seal;
}

}  // namespace ddprun
