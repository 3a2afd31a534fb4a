#include "worker_runtime/extras/profiler/profile_steps.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace ddprun::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two ranks train for `steps` steps; rank 1 is profiled. (They are threads, and a process has one profiler.)
void Train(int steps, const ProfileOptions& options) {
  ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(std::make_shared<torch::nn::LinearImpl>(4, 2), group));
    std::unique_ptr<ProfileSteps> profiler;
    if (rank == 1) {
      auto created = ProfileSteps::Create(*group, options);
      if (!created.ok()) return created.status();
      profiler = *std::move(created);
    }
    for (int step = 0; step < steps; ++step) {
      ddp->forward(at::ones({3, 4})).sum().backward();
      if (rank != 1) continue;
      if (absl::Status status = profiler->Step(); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

std::vector<std::string> FilesOf(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return {names.begin(), names.end()};
}

std::string NameOf(int step) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, "_1.", step, ".pt.trace.json");
}

nlohmann::json ReadTrace(const std::string& path) {
  return nlohmann::json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
}

std::set<std::string> EventsOf(const nlohmann::json& trace, const std::string& prefix = "") {
  std::set<std::string> names;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string name = event.value("name", "");
    if (name.rfind(prefix, 0) == 0) names.insert(name);
  }
  return names;
}

TEST(ProfileSteps, Trace_HasOperatorsCollectivesStepsAndRank) {
  TempDir folder;
  Train(8, {.folder = folder.File("new/runs"), .wait = 1, .warmup = 1, .active = 2, .first_step = 100});
  EXPECT_THAT(FilesOf(folder.File("new/runs")), ElementsAre(NameOf(104)));
  const nlohmann::json trace = ReadTrace(folder.File("new/runs/") + NameOf(104));
  ASSERT_FALSE(trace.is_discarded());
  EXPECT_EQ(trace.at("distributedInfo"), (nlohmann::json{{"backend", "gloo"}, {"rank", 1}, {"world_size", 2}}));
  EXPECT_THAT(EventsOf(trace), Contains("aten::addmm"));
  EXPECT_THAT(EventsOf(trace), Contains("gloo:all_reduce"));
  EXPECT_THAT(EventsOf(trace, "autograd::engine"), Not(IsEmpty()));
  EXPECT_THAT(EventsOf(trace, "ProfilerStep#"), ElementsAre("ProfilerStep#102", "ProfilerStep#103"));
}

TEST(ProfileSteps, Repeat_ATraceForEachCycle) {
  TempDir folder;
  Train(9, {.folder = folder.path(), .wait = 1, .warmup = 0, .active = 1, .repeat = 3});
  EXPECT_THAT(FilesOf(folder.path()), ElementsAre(NameOf(2), NameOf(4), NameOf(6)));
  EXPECT_THAT(EventsOf(ReadTrace(folder.File(NameOf(6))), "ProfilerStep#"), ElementsAre("ProfilerStep#5"));
}

TEST(ProfileSteps, TrainingEndsWithinACycle_WritesWhatThereIs) {
  TempDir folder;
  Train(2, {.folder = folder.path(), .wait = 0, .warmup = 0, .active = 5});
  EXPECT_THAT(FilesOf(folder.path()), ElementsAre(NameOf(2)));
  EXPECT_THAT(EventsOf(ReadTrace(folder.File(NameOf(2)))), Contains("ProfilerStep#1"));
}

TEST(ProfileSteps, Mistakes_AreExplained) {
  ExpectRanksSucceed(1, [](int, Group group) {
    EXPECT_THAT(std::string(ProfileSteps::Create(*group, {.folder = "x", .active = 0}).status().message()),
                HasSubstr("active=0, repeat=1: active must be at least 1"));
    EXPECT_THAT(std::string(ProfileSteps::Create(*group, {.folder = "/proc/runs"}).status().message()),
                HasSubstr("can't create the folder /proc/runs"));
    TempDir folder;
    auto profiler = ProfileSteps::Create(*group, {.folder = folder.File("runs"), .wait = 0, .warmup = 0, .active = 1});
    std::filesystem::remove_all(folder.File("runs"));
    EXPECT_THAT(std::string((*profiler)->Step().message()), HasSubstr("the profiler could not write " + folder.path()));
  });
}

}  // namespace
}  // namespace ddprun::testing
