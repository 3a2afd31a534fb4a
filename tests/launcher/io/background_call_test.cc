#include "launcher/io/background_call.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

namespace ddprun::launcher {
namespace {

TEST(BackgroundCallTest, WorkBlocks_LoopGoesOnAndIsToldLater) {
  auto loop = *EventLoop::Create();
  std::promise<std::string> answer;
  std::string got;
  BackgroundCall<std::string> call(
      loop.get(), [future = answer.get_future().share()] { return future.get(); },
      [&](std::string result) {
        got = std::move(result);
        loop->Quit();
      });
  bool turned = false;
  loop->Post([&] {
    turned = true;
    EXPECT_EQ(got, "");
    answer.set_value("the answer");
  });
  loop->Run();
  EXPECT_TRUE(turned);
  EXPECT_EQ(got, "the answer");
}

TEST(BackgroundCallTest, DestroyedMeanwhile_NobodyIsTold) {
  auto loop = *EventLoop::Create();
  std::promise<int> answer;
  {
    BackgroundCall<int> call(
        loop.get(), [future = answer.get_future().share()] { return future.get(); },
        [](int) { ADD_FAILURE() << "told"; });
  }
  answer.set_value(1);
  loop->Post([&] { loop->Quit(); });
  loop->Run();
}

}  // namespace
}  // namespace ddprun::launcher
