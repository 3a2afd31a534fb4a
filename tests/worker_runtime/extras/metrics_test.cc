#include "worker_runtime/extras/metrics.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/worker_runtime/testing/ranks.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, Reduce_SeveralStepsAndRanks_WeightsMeansButNotSums) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    Metrics metrics;
    for (int step = 1; step <= 2; ++step) {
      const double value = 10 * rank + step;
      metrics.Add("number", value, rank + 1);
      metrics.Add("tensor", at::full({1}, value, at::kFloat).requires_grad_(), rank + 1);
      metrics.Add("plain", value);
      metrics.AddSum("sum", value);
      metrics.AddSum("count", at::full({1, 1}, step, at::kLong));
    }
    const auto values = metrics.Reduce(*group);
    // Ranks 0, 1, 2 have 1 and 2, 11 and 12, 21 and 22.
    const double weighted = (1 * 3.0 + 2 * 23 + 3 * 43) / (2 * (1 + 2 + 3));
    EXPECT_EQ(*values,
              (std::map<std::string, double>{
                  {"number", weighted}, {"tensor", weighted}, {"plain", 69.0 / 6}, {"sum", 69}, {"count", 9}}));

    metrics.Add("number", rank);
    const auto next = metrics.Reduce(*group);
    EXPECT_EQ(*next, (std::map<std::string, double>{{"number", 1}}));
  });
}

TEST(Metrics, AddSum_TensorChangesLater_UsesTheValueOfTheCall) {
  ExpectRanksSucceed(1, [](int, Group group) {
    Metrics metrics;
    at::Tensor value = at::full({}, 5, at::kDouble);
    metrics.AddSum("x", value);
    value.fill_(100);
    EXPECT_EQ(metrics.Reduce(*group).value()["x"], 5);
  });
}

TEST(Metrics, Reduce_RankWithoutSamples_DoesNotCount) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    Metrics metrics;
    metrics.Add("loss", rank == 0 ? 7 : std::nan(""), rank == 0 ? 3 : 0);
    metrics.Add("none", 1, 0);
    const auto values = metrics.Reduce(*group);
    EXPECT_EQ(values->at("loss"), 7);
    EXPECT_TRUE(std::isnan(values->at("none")));
  });
}

TEST(Metrics, Reduce_ManyRanksAndNames_EqualOnAll) {
  ExpectRanksSucceed(7, [](int, Group group) {
    Metrics metrics;
    for (int i = 0; i < Metrics::kMaxNames; ++i) metrics.Add(absl::StrCat("metric ", i), i);
    const auto values = metrics.Reduce(*group);
    for (int i = 0; i < Metrics::kMaxNames; ++i) EXPECT_EQ(values->at(absl::StrCat("metric ", i)), i);
  });
}

// Error of Reduce, which must be the same on all ranks and leave the group usable.
std::string ErrorOf(absl::FunctionRef<void(int rank, Metrics& metrics)> add) {
  std::string error;
  ExpectRanksSucceed(3, [&](int rank, Group group) {
    Metrics metrics;
    add(rank, metrics);
    const absl::Status status = metrics.Reduce(*group).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    if (rank == 0) error = std::string(status.message());
    EXPECT_EQ(group->BroadcastText(std::string(status.message())).value(), status.message());
  });
  return error;
}

// After the recovery of an elastic job, a new worker has added nothing yet.
TEST(Metrics, Reduce_NamesDiffer_ReducesAllOfThem) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    Metrics metrics;
    if (rank != 1) metrics.Add("loss", rank, 2);
    if (rank == 0) metrics.AddSum("rare", 5);
    if (rank == 2) metrics.AddSum("tokens in all", 7);
    const auto values = metrics.Reduce(*group);
    EXPECT_EQ(*values, (std::map<std::string, double>{{"loss", 1}, {"rare", 5}, {"tokens in all", 7}}));
    const auto none = metrics.Reduce(*group);
    EXPECT_TRUE(none.ok() && none->empty()) << none.status();
  });
}

TEST(Metrics, Reduce_MeanOnOneRankAndSumOnAnother_IsInvalidArgumentOnAll) {
  EXPECT_THAT(ErrorOf([](int rank, Metrics& metrics) {
                if (rank == 1) metrics.Add("loss", 1);
                if (rank == 2) metrics.AddSum("loss", 1);
              }),
              HasSubstr("metric \"loss\" was given to Add and to AddSum"));
}

TEST(Metrics, Reduce_BadNamesOnOneRank_IsInvalidArgumentOnAll) {
  EXPECT_THAT(ErrorOf([](int rank, Metrics& metrics) {
                metrics.Add("loss", 1);
                if (rank == 1) metrics.AddSum("loss", 1);
              }),
              HasSubstr("metric \"loss\" was given to Add and to AddSum"));
  EXPECT_THAT(ErrorOf([](int rank, Metrics& metrics) {
                for (int i = 0; i < (rank == 1 ? 101 : 1); ++i) metrics.Add(absl::StrCat("step ", i), 1);
              }),
              HasSubstr("there are 101 metrics, more than 100"));
}

}  // namespace
}  // namespace ddprun::testing
