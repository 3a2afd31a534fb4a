#include "worker_runtime/safetensors/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker_runtime/safetensors/checksum.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(Checksum, Value_KnownInputs_IsXxh3) {
  // From the xxHash project's own test vectors: the empty input.
  EXPECT_EQ(ChecksumText(Checksum("")), "2d06800538d394c2");
  ChecksumStream stream;
  const std::string bytes(5000, 'q');
  stream.Add(bytes.substr(0, 1));
  stream.Add(bytes.substr(1));
  EXPECT_EQ(stream.Value(), Checksum(bytes));
}

TEST(Checksum, Text_RoundTrip_RefusesAnythingElse) {
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
  const auto header = ParseSafetensorsHeader("f", text, 8 + text.size() + 11);
  if (!header.ok()) return header.status();
  return ReadSeal("f", text, *header);
}

TEST(Seal, Read_OwnText_GivesTheChecksums) {
  const auto seal = Read(SealHeader(TwoTensors({{"a", "\"ddprun.header_xxh3\":\"0000000000000000"}}), {1, 2}));
  ASSERT_TRUE(seal->has_value());
  EXPECT_EQ((*seal)->tensor_checksums, (std::vector<uint64_t>{1, 2}));
}

TEST(Seal, Read_EveryFlippedBit_IsFound) {
  const std::string text = SealHeader(TwoTensors({{"ddprun.step", "3"}, {"note", "x"}}), {1, 2});
  for (size_t byte = 0; byte < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      EXPECT_FALSE(Read(damaged).ok()) << "byte " << byte << " bit " << bit;
    }
  }
}

TEST(Seal, Read_ForeignText_HasNone) {
  const auto seal = Read(SafetensorsHeaderText(TwoTensors({{"format", "pt"}})));
  EXPECT_FALSE(seal->has_value());
}

TEST(Seal, Read_OursWithoutChecksum_IsDamaged) {
  EXPECT_THAT(Read(SafetensorsHeaderText(TwoTensors({{"ddprun.step", "3"}}))).status().message(),
              HasSubstr("has no checksum"));
}

}  // namespace
}  // namespace ddprun
