#include "launcher/hosts/frames.h"

#include <gtest/gtest.h>

#include "proto/hosts.pb.h"

namespace ddprun::launcher {
namespace {

TEST(FramesTest, MessagesArriveInAnyPieces) {
  hosts::v1::HostReport report;
  report.mutable_output()->set_data(std::string(300, 'x'));
  std::string sent;
  AppendFrame(report, &sent);
  AppendFrame(hosts::v1::HostReport(), &sent);  // no bytes
  std::string bytes;
  std::vector<std::string> frames;
  bool error = false;
  for (const char byte : sent) {
    bytes.push_back(byte);
    while (std::optional<std::string> frame = TakeFrame(&bytes, &error)) frames.push_back(*std::move(frame));
  }
  ASSERT_EQ(frames.size(), 2u);
  hosts::v1::HostReport received;
  ASSERT_TRUE(received.ParseFromString(frames[0]));
  EXPECT_EQ(received.output().data(), report.output().data());
  EXPECT_EQ(frames[1], "");
  EXPECT_FALSE(error);
}

TEST(FramesTest, BytesThatAreNoMessages_AreAnError) {
  std::string bytes = "Welcome!";
  bool error = false;
  EXPECT_EQ(TakeFrame(&bytes, &error), std::nullopt);
  EXPECT_TRUE(error);
}

}  // namespace
}  // namespace ddprun::launcher
