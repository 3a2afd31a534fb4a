#include "launcher/capsule/capsule_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

class CapsuleFolderTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& file, const std::string& text) const {
    const std::string path = dir_.File(file);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return std::filesystem::path(path).parent_path();
  }

  // Configuration of a launcher with --log-dir.
  LaunchConfig Config(int slots) const {
    LaunchConfig config;
    config.job_id = "j";
    config.slots = slots;
    config.options.output.log_dir = dir_.path();
    return config;
  }

  const testing::TempDir dir_;
};

TEST_F(CapsuleFolderTest, FindCapsule_LogFolder_NewestWithANode) {
  const std::string old = Write("capsules/j-round-1-00000000/node-0.txtpb", "");
  const std::string newest = Write("capsules/j-round-2-00000000/node-0.txtpb", "");
  const std::string empty = Write("capsules/j-round-3-00000000/rank-0.stderr", "");
  std::filesystem::last_write_time(old, std::filesystem::last_write_time(empty) - std::chrono::hours(2));
  std::filesystem::last_write_time(newest, std::filesystem::last_write_time(empty) - std::chrono::hours(1));
  for (const std::string& path : {dir_.path(), dir_.File("capsules"), newest}) {
    EXPECT_EQ(FindCapsule(path).value_or(""), newest) << path;
  }
  EXPECT_EQ(FindCapsule(old).value_or(""), old);
  EXPECT_TRUE(absl::IsNotFound(FindCapsule(dir_.File("none")).status()));
}

TEST_F(CapsuleFolderTest, ReadCapsule_BadFiles_LeftOut) {
  const std::string folder = Write("c/node-0.txtpb", "job: \"j\" of_a_later_version: 1");
  Write("c/node-1.txtpb", "job: ");
  Write("c/node-2.txtpb", std::string("\0\xff", 2));
  const auto nodes = ReadCapsule(folder);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(nodes->size(), 1);
  EXPECT_EQ(nodes->front().job(), "j");
  std::filesystem::remove(folder + "/node-0.txtpb");
  EXPECT_THAT(std::string(ReadCapsule(folder).status().message()), HasSubstr("no readable node-N.txtpb"));
}

TEST_F(CapsuleFolderTest, Write_SharedFolder_OneFilePerNode) {
  const LaunchConfig config = Config(1);
  rendezvous::Assignment round;
  round.set_round(1);
  round.set_group_world_size(2);
  round.set_world_size(2);
  round.set_store_secret("sixteen bytes...");
  Write("out/text", "out");
  Write("err/text", "old\npassword=planted\n");
  std::string folders[2];
  for (int node = 0; node < 2; ++node) {
    round.set_group_rank(node);
    round.set_base_rank(node);
    CapsuleWriter writer(config, "host", "launcher", {});
    writer.record().BeginRound(round, absl::Now());
    writer.record().OnReported(rendezvous::NewFailure());
    hang::v1::NodeEvidence stacks;
    hang::v1::Rank& rank = *stacks.add_ranks();
    rank.set_rank(node);
    rank.mutable_process()->add_native("in poll");
    writer.OnOutput(0, {.path = dir_.File("out/text")}, {.path = dir_.File("err/text"), .from = 4});
    writer.Write(stacks);
    folders[node] = writer.Finish(absl::InfiniteDuration());
  }
  EXPECT_EQ(folders[0], folders[1]);
  const auto nodes = ReadCapsule(folders[0]);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(nodes->size(), 2);
  EXPECT_THAT((*nodes)[1].ranks(0).files(), ::testing::ElementsAre("rank-1.stderr", "rank-1.stdout", "rank-1.stack"));
  EXPECT_EQ((*nodes)[1].assignment().store_secret(), "");
  EXPECT_EQ(testing::ReadFile(folders[0] + "/rank-0.stdout"), "out");
  EXPECT_EQ(testing::ReadFile(folders[0] + "/rank-0.stderr"), "password=***\n");
  EXPECT_THAT(testing::ReadFile(folders[0] + "/rank-1.stack"), HasSubstr("in poll"));
}

TEST_F(CapsuleFolderTest, Write_ManyRanksWithLongTexts_StaysWithinItsShare) {
  const LaunchConfig config = Config(64);
  std::string text;
  while (text.size() < 200'000) text += "<\"using planted\">\n";  // escapes and the mask make it longer
  Write("err/text", text);
  for (const int nodes : {1, 100}) {
    rendezvous::Assignment round;
    round.set_round(nodes);
    round.set_group_world_size(nodes);
    round.set_world_size(nodes * config.slots);
    CapsuleWriter writer(config, "host", "launcher", {"API_KEY=planted"});
    writer.record().BeginRound(round, absl::Now());
    hang::v1::NodeEvidence stacks;
    std::vector<WorkerEnd> ends;
    for (int rank = 0; rank < config.slots; ++rank) {
      rendezvous::WorkerFailure failure = rendezvous::NewFailure();
      failure.set_rank(rank);
      failure.set_traceback(text.substr(0, rendezvous::kMaxTracebackBytes));
      ends.push_back({rank, failure, {}});
      hang::v1::Rank& stack = *stacks.add_ranks();
      stack.set_rank(rank);
      stack.mutable_process()->add_native(text.substr(0, 4000));
      writer.OnOutput(rank, {.path = dir_.File("err/text")}, {.path = dir_.File("err/text")});
      writer.record().OnEvent(text.substr(0, 2000), absl::Now());
    }
    writer.record().OnEnded(ends, /*stopped=*/false, absl::Now());
    writer.record().OnReported(*ends[0].failure);
    writer.Write(stacks);
    const std::string folder = writer.Finish(absl::InfiniteDuration());
    size_t bytes = 0, files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      bytes += file.file_size();
      ++files;
    }
    EXPECT_LE(bytes, ShareOfNode(nodes));
    EXPECT_EQ(files, 3 * config.slots + 1);
    const auto read = ReadCapsule(folder);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->front().ranks_size(), config.slots);
    EXPECT_THAT(read->front().ranks(63).failure().traceback(), HasSubstr("using ***"));
  }
}

TEST_F(CapsuleFolderTest, Write_NoLogFolder_WritesNothing) {
  CapsuleWriter writer(LaunchConfig(), "host", "launcher", {});
  writer.record().OnReported(rendezvous::NewFailure());
  writer.Write({});
  EXPECT_EQ(writer.Finish(absl::InfiniteDuration()), "");
}

}  // namespace
}  // namespace ddprun::launcher
