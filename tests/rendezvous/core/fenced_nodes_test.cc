#include "rendezvous/core/fenced_nodes.h"

#include <vector>

#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

SteadyTime At(int seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

TEST(FencedNodesTest, AllGone_IsWhenTheLastOneIs) {
  FencedNodes gone;
  EXPECT_EQ(gone.AllGone(), SteadyTime::InfinitePast());
  gone.Add("a", 1, At(5));
  gone.Add("b", 1, At(9));
  gone.Add("c", 1, At(7));
  EXPECT_EQ(gone.AllGone(), At(9));
  gone.CameBack("b");
  EXPECT_EQ(gone.AllGone(), At(7));
  gone.AddUnknown(At(8));
  EXPECT_EQ(gone.AllGone(), At(8));
  gone.DropUnknown();
  EXPECT_EQ(gone.AllGone(), At(7));
}

TEST(FencedNodesTest, StreamClosed_OfAnOlderIncarnation_ProvesNothing) {
  FencedNodes gone;
  gone.Add("a", 3, At(5));
  EXPECT_FALSE(gone.StreamClosed("a", 2));
  EXPECT_FALSE(gone.StreamClosed("b", 3));
  EXPECT_EQ(gone.AllGone(), At(5));
  EXPECT_TRUE(gone.StreamClosed("a", 3));
  EXPECT_EQ(gone.AllGone(), SteadyTime::InfinitePast());
}

TEST(FencedNodesTest, StillThere_MovesTheTimeOnlyOn) {
  FencedNodes gone;
  gone.Add("a", 1, At(5));
  EXPECT_TRUE(gone.StillThere("a", 1, At(6)));
  EXPECT_TRUE(gone.StillThere("a", 1, At(4)));
  EXPECT_FALSE(gone.StillThere("a", 2, At(9)));
  EXPECT_FALSE(gone.StillThere("b", 1, At(9)));
  EXPECT_EQ(gone.AllGone(), At(6));
}

TEST(FencedNodesTest, Record_HasThoseThatAreKnownAndMayHaveWorkers) {
  FencedNodes gone;
  gone.AddUnknown(At(8));
  gone.Add("b", 2, At(5), "digest");
  gone.Add("a", 1, At(9));
  EXPECT_EQ(gone.Record(At(4)), (std::vector<FencedNodeRecord>{{"a", 1, ""}, {"b", 2, "digest"}}));
  EXPECT_EQ(gone.Record(At(5)), (std::vector<FencedNodeRecord>{{"a", 1, ""}}));
}

}  // namespace
}  // namespace ddprun::rendezvous
