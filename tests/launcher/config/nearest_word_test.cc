#include "launcher/config/nearest_word.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddprun::launcher {
namespace {

const std::vector<std::string> kWords = {"nnodes", "nproc-per-node", "node-rank", "redirects", "role"};

TEST(NearestWord, SmallMistakes_AreFound) {
  EXPECT_EQ(NearestWord("nnode", kWords), "nnodes");
  EXPECT_EQ(NearestWord("nodes", kWords), "nnodes");
  EXPECT_EQ(NearestWord("nproc-pre-node", kWords), "nproc-per-node");
  EXPECT_EQ(NearestWord("redirect", kWords), "redirects");
  EXPECT_EQ(NearestWord("nproc", kWords), "nproc-per-node");  // an abbreviation
  EXPECT_EQ(NearestWord("role", kWords), "role");
}

TEST(NearestWord, NothingNear_IsNone) {
  EXPECT_EQ(NearestWord("learning-rate", kWords), std::nullopt);
  EXPECT_EQ(NearestWord("", kWords), std::nullopt);
  EXPECT_EQ(NearestWord("xy", kWords), std::nullopt);
  EXPECT_EQ(NearestWord(std::string(1000, 'n'), kWords), std::nullopt);
  EXPECT_EQ(NearestWord("nnodes", {}), std::nullopt);
}

}  // namespace
}  // namespace ddprun::launcher
