#include "worker_runtime/safetensors/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_runtime/safetensors/checksum.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SafetensorsTensor Tensor(const std::string& name, SafetensorsDtype dtype, std::vector<int64_t> shape) {
  return {name, dtype, std::move(shape), 0, 0};
}

TEST(SafetensorsHeader, DtypeFromName_EachName_RoundTrips) {
  for (int i = 0; i <= static_cast<int>(SafetensorsDtype::kF8E8M0); ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    EXPECT_EQ(SafetensorsDtypeFromName(SafetensorsDtypeName(dtype)), dtype);
    EXPECT_GT(SafetensorsDtypeBytes(dtype), 0u);
  }
  EXPECT_EQ(SafetensorsDtypeFromName("F4"), std::nullopt);
}

TEST(SafetensorsHeader, LayOut_MixedTypes_AlignsEachToItsElement) {
  const auto header =
      LayOutSafetensors({Tensor("a", SafetensorsDtype::kU8, {3}), Tensor("b", SafetensorsDtype::kF32, {2}),
                         Tensor("c", SafetensorsDtype::kF64, {}), Tensor("d", SafetensorsDtype::kF16, {1}),
                         Tensor("e", SafetensorsDtype::kF32, {0, 7})},
                        {});
  std::vector<std::string> order;
  uint64_t end = 0;
  for (const SafetensorsTensor& tensor : header->tensors) {
    order.push_back(tensor.name);
    EXPECT_EQ(tensor.begin, end);
    EXPECT_EQ(tensor.begin % SafetensorsDtypeBytes(tensor.dtype), 0u);
    end = tensor.end;
  }
  EXPECT_THAT(order, ElementsAre("c", "b", "e", "d", "a"));
  EXPECT_EQ(header->data_bytes(), 8 + 8 + 0 + 2 + 3);
}

TEST(SafetensorsHeader, Parse_OwnText_RoundTrips) {
  auto header =
      LayOutSafetensors({Tensor("w", SafetensorsDtype::kBF16, {2, 3}), Tensor("s", SafetensorsDtype::kI64, {}),
                         Tensor("empty", SafetensorsDtype::kF32, {0}), Tensor("ä\"\\", SafetensorsDtype::kU8, {1})},
                        {{"step", "7"}, {"note", "line\nend \"q\""}});
  const std::string text = SafetensorsHeaderText(*header);
  EXPECT_EQ((text.size() + 8) % kSafetensorsDataAlignment, 0u);
  const uint64_t file_bytes = 8 + text.size() + header->data_bytes();
  EXPECT_EQ(SafetensorsTextBytes("f", SafetensorsPrefix(text.size()), file_bytes).value(), text.size());
  const auto parsed = ParseSafetensorsHeader("f", text, file_bytes);
  EXPECT_EQ(parsed->metadata, header->metadata);
  ASSERT_EQ(parsed->tensors.size(), header->tensors.size());
  for (size_t i = 0; i < parsed->tensors.size(); ++i) {
    EXPECT_EQ(parsed->tensors[i].name, header->tensors[i].name);
    EXPECT_EQ(parsed->tensors[i].shape, header->tensors[i].shape);
    EXPECT_EQ(parsed->tensors[i].begin, header->tensors[i].begin);
  }
  EXPECT_EQ(parsed->data_begin, text.size() + 8);
  EXPECT_NE(parsed->Find("w"), nullptr);
  EXPECT_EQ(parsed->Find("x"), nullptr);
}

TEST(SafetensorsHeader, LayOut_InvalidTensor_ErrorNamesIt) {
  const auto twice =
      LayOutSafetensors({Tensor("w", SafetensorsDtype::kU8, {1}), Tensor("w", SafetensorsDtype::kU8, {2})}, {});
  EXPECT_THAT(twice.status().message(), HasSubstr("duplicate tensor \"w\""));
  const auto reserved = LayOutSafetensors({Tensor("__metadata__", SafetensorsDtype::kU8, {1})}, {});
  EXPECT_THAT(reserved.status().message(), HasSubstr("__metadata__"));
  const auto huge = LayOutSafetensors({Tensor("w", SafetensorsDtype::kF64, {int64_t{1} << 40, int64_t{1} << 40})}, {});
  EXPECT_THAT(huge.status().message(), HasSubstr("invalid shape"));
}

TEST(SafetensorsHeader, TextBytes_BadPrefix_ErrorHasTheReason) {
  EXPECT_THAT(SafetensorsTextBytes("a.safetensors", "123", 3).status().message(),
              HasSubstr("a.safetensors is not a valid safetensors file: it has only 3 bytes"));
  EXPECT_THAT(SafetensorsTextBytes("a", std::string(8, '\xff'), 100).status().message(), HasSubstr("limit 100000000"));
  EXPECT_THAT(SafetensorsTextBytes("a", SafetensorsPrefix(93), 100).status().message(),
              HasSubstr("truncated after 92"));
  EXPECT_THAT(SafetensorsTextBytes("a", SafetensorsPrefix(0), 100).status().message(), HasSubstr("empty"));
}

TEST(SafetensorsHeader, Parse_InvalidText_ErrorHasTheReason) {
  const struct {
    std::string text;
    uint64_t data_bytes;
    const char* why;
  } kCases[] = {
      {"[]", 0, "not a JSON object"},
      {"17", 0, "not a JSON object"},
      {"{", 0, "JSON is broken"},
      {"{} {}", 0, "JSON is broken"},
      {R"({"w":1})", 0, "unexpected number"},
      {R"({"w":{"dtype":"F32","shape":[1]}})", 4, "data_offsets is missing"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown entry \"x\""},
      {R"({"w":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"F99\""},
      {R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative"},
      {R"({"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "fraction"},
      {R"({"w":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "unexpected list"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "must have two entries"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4, "must have two entries"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "ends before it begins"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "truncated file?"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "end at byte 4 of 5"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "shape and dtype need 8"},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "shape is too large"},
      {R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "dimension is too large"},
      {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"v":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "overlaps another"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"v":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "gap before it"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "duplicate"},
      {R"({"__metadata__":{"a":1}})", 0, "metadata \"a\": unexpected number"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", 0, "unexpected object"},
      {absl::StrCat(R"({"w":{"dtype":"F32","shape":[)", std::string(200, '1'), R"(],"data_offsets":[0,4]}})"), 4, ""},
      {absl::StrCat("{\"w\":", std::string(100000, '[')), 0, "unexpected list"},
  };
  for (const auto& test : kCases) {
    const auto header = ParseSafetensorsHeader("evil.safetensors", test.text, 8 + test.text.size() + test.data_bytes);
    EXPECT_EQ(header.status().code(), absl::StatusCode::kDataLoss) << test.text.substr(0, 200);
    EXPECT_THAT(header.status().message(), HasSubstr("evil.safetensors is not a valid safetensors file"));
    EXPECT_THAT(header.status().message(), HasSubstr(test.why)) << test.text.substr(0, 200);
    EXPECT_LT(header.status().message().size(), 400u);
    EXPECT_FALSE(absl::StrContains(header.status().message(), "\n"));
  }
}

// Invariants of every accepted header.
void ExpectFits(const SafetensorsHeader& header, uint64_t file_bytes) {
  uint64_t end = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    ASSERT_EQ(tensor.begin, end);
    uint64_t bytes = SafetensorsDtypeBytes(tensor.dtype);
    for (const int64_t size : tensor.shape) {
      ASSERT_GE(size, 0);
      bytes *= static_cast<uint64_t>(size);
    }
    ASSERT_EQ(tensor.bytes(), bytes);
    end = tensor.end;
  }
  ASSERT_EQ(header.data_begin + end, file_bytes);
}

std::string DamagedCopy(std::string file, std::mt19937& random) {
  const auto below = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  static const char* const kPieces[] = {
      "18446744073709551615", "-1", "1e999", "[[[[", "{\"a\":", "null", "\"F32\"", "\\u0000", ","};
  for (size_t changes = 1 + below(3); changes > 0; --changes) {
    if (file.empty()) break;
    switch (below(6)) {
      case 0: file[below(file.size())] ^= static_cast<char>(1 << below(8)); break;
      case 1: file.resize(below(file.size())); break;
      case 2: file.insert(below(file.size()), kPieces[below(std::size(kPieces))]); break;
      case 3: file[below(std::min<size_t>(8, file.size()))] = static_cast<char>(below(256)); break;
      case 4: {
        const size_t from = below(file.size());
        file.erase(from, 1 + below(16));
        break;
      }
      default: file.append(1 + below(32), static_cast<char>(below(256)));
    }
  }
  return file;
}

// Thousands of damaged files: each is refused with one line that names it, or satisfies the invariants. With a seal all
// damage to the header is detected.
TEST(SafetensorsHeader, Parse_RandomDamage_ResultIsConsistentOrAnError) {
  const auto layout = LayOutSafetensors(
      {Tensor("layer.0.weight", SafetensorsDtype::kF32, {2, 3}), Tensor("layer.0.bias", SafetensorsDtype::kF32, {3}),
       Tensor("steps", SafetensorsDtype::kI64, {}), Tensor("mask", SafetensorsDtype::kBool, {5})},
      {{"ddprun.step", "12"}});
  const std::string sealed = SealHeader(*layout, std::vector<uint64_t>(4, 77));
  // Without the padding, which most of the damage would hit.
  std::string plain = SafetensorsHeaderText(*layout);
  plain.resize(plain.find_last_not_of(' ') + 1);
  std::mt19937 random(20240517);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string& text = round % 8 == 0 ? sealed : plain;
    const std::string whole =
        absl::StrCat(SafetensorsPrefix(text.size()), text, std::string(layout->data_bytes(), 'x'));
    const std::string file = DamagedCopy(whole, random);
    absl::Status status;
    const auto length = SafetensorsTextBytes("x.safetensors", file, file.size());
    status = length.status();
    if (length.ok()) {
      ASSERT_LE(*length + 8, file.size());
      const absl::string_view header_text(file.data() + 8, *length);
      const auto header = ParseSafetensorsHeader("x.safetensors", header_text, file.size());
      status = header.status();
      if (header.ok()) {
        ExpectFits(*header, file.size());
        const auto seal = ReadSeal("x.safetensors", header_text, *header);
        status = seal.status();
        if (seal.ok() && seal->has_value()) {
          EXPECT_EQ(header_text, sealed) << "round " << round;
        }
      }
    }
    status.ok() ? ++accepted : ++refused;
    if (!status.ok()) {
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss);
      ASSERT_TRUE(absl::StartsWith(status.message(), "x.safetensors ")) << status;
      ASSERT_FALSE(absl::StrContains(status.message(), "\n")) << status;
    }
  }
  EXPECT_GT(refused, 10000);
  EXPECT_GT(accepted, 20) << "no damage left a valid file: the test does not reach its second half";
}

TEST(Checksum, Checksum_KnownInputs_IsXxh3) {
  // From the xxHash project's own test vectors: the empty input.
  EXPECT_EQ(ChecksumText(Checksum("")), "2d06800538d394c2");
  ChecksumStream stream;
  const std::string bytes(5000, 'q');
  stream.Add(bytes.substr(0, 1));
  stream.Add(bytes.substr(1));
  EXPECT_EQ(stream.Value(), Checksum(bytes));
}

TEST(Checksum, ChecksumFromText_OwnText_RoundTripsAndRejectsOthers) {
  EXPECT_EQ(ChecksumFromText(ChecksumText(0x0123456789abcdef)), 0x0123456789abcdefu);
  EXPECT_EQ(ChecksumText(5), "0000000000000005");
  EXPECT_EQ(ChecksumFromText("123"), std::nullopt);
  EXPECT_EQ(ChecksumFromText("00000000000000G0"), std::nullopt);
  EXPECT_EQ(ChecksumFromText("00000000000000A0"), std::nullopt);
}

SafetensorsHeader TwoTensors(std::map<std::string, std::string> metadata) {
  return LayOutSafetensors({{"w", SafetensorsDtype::kF32, {2}, 0, 0}, {"b", SafetensorsDtype::kU8, {3}, 0, 0}},
                           std::move(metadata))
      .value();
}

absl::StatusOr<std::optional<Seal>> Read(const std::string& text) {
  DDPRUN_ASSIGN_OR_RETURN(const auto header, ParseSafetensorsHeader("f", text, 8 + text.size() + 11));
  return ReadSeal("f", text, header);
}

TEST(Seal, ReadSeal_OwnText_ReturnsTheChecksums) {
  const auto seal = Read(SealHeader(TwoTensors({{"a", "\"ddprun.header_xxh3\":\"0000000000000000"}}), {1, 2}));
  ASSERT_TRUE(seal->has_value());
  EXPECT_EQ((*seal)->tensor_checksums, (std::vector<uint64_t>{1, 2}));
}

TEST(Seal, ReadSeal_AnyBitFlipped_IsDataLoss) {
  const std::string text = SealHeader(TwoTensors({{"ddprun.step", "3"}, {"note", "x"}}), {1, 2});
  for (size_t byte = 0; byte < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      EXPECT_FALSE(Read(damaged).ok()) << "byte " << byte << " bit " << bit;
    }
  }
}

TEST(Seal, ReadSeal_OtherProgramsText_IsNullopt) {
  const auto seal = Read(SafetensorsHeaderText(TwoTensors({{"format", "pt"}})));
  EXPECT_FALSE(seal->has_value());
}

TEST(Seal, ReadSeal_OwnTextWithoutChecksum_IsDataLoss) {
  EXPECT_THAT(Read(SafetensorsHeaderText(TwoTensors({{"ddprun.step", "3"}}))).status().message(),
              HasSubstr("has no checksum"));
}

}  // namespace
}  // namespace ddprun::testing
