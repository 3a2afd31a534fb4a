#include "tests/worker_runtime/elastic/elastic_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

void ForEachLine(const std::string& out, absl::FunctionRef<void(std::istringstream words)> use) {
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) use(std::istringstream(line));
}

}  // namespace

std::map<int64_t, std::map<int, std::string>> LossesIn(const std::string& out, const std::string& what) {
  std::map<int64_t, std::map<int, std::string>> losses;
  ForEachLine(out, [&](std::istringstream words) {
    std::string first, rank_word, loss_word, loss;
    int64_t step = 0;
    int rank = 0;
    if (!(words >> first >> step >> rank_word >> rank >> loss_word >> loss) || first != what || loss_word != "loss") {
      return;
    }
    const auto [kept, is_new] = losses[step].emplace(rank, loss);
    EXPECT_TRUE(is_new || kept->second == loss) << "step " << step << " of rank " << rank << " was made twice";
  });
  return losses;
}

std::map<int, std::string> ModelsIn(const std::string& out) {
  std::map<int, std::string> models;
  ForEachLine(out, [&](std::istringstream words) {
    std::string end, rank_word, model_word, hash;
    int rank = 0;
    if (words >> end >> rank_word >> rank >> model_word >> hash && end == "end") models[rank] = hash;
  });
  return models;
}

std::map<int64_t, std::multiset<int64_t>> CommittedSamplesIn(const std::string& out) {
  struct Batch {
    int world_size = 0;
    int64_t epoch = 0;
    std::vector<int64_t> samples;
  };
  std::map<std::pair<int64_t, int64_t>, std::map<int, Batch>> batches;  // keyed by step and round, then rank
  std::map<int64_t, int64_t> committed;                                 // step: its last round
  ForEachLine(out, [&](std::istringstream words) {
    std::string what, word;
    int64_t step = 0, round = 0;
    int rank = 0;
    Batch batch;
    words >> what >> step;
    if (what == "commit" && words >> word >> round) committed[step] = std::max(committed[step], round);
    if (what != "batch" || !(words >> word >> rank >> word >> batch.world_size >> word >> round >> word)) return;
    words >> batch.epoch >> word;
    for (int64_t sample = 0; words >> sample;) batch.samples.push_back(sample);
    batches[{step, round}][rank] = std::move(batch);
  });
  std::map<int64_t, std::multiset<int64_t>> samples;
  for (const auto& [step, round] : committed) {
    const auto& of_step = batches[{step, round}];
    for (const auto& [rank, batch] : of_step) {
      EXPECT_EQ(of_step.size(), batch.world_size) << "step " << step << " in round " << round;
      samples[batch.epoch].insert(batch.samples.begin(), batch.samples.end());
    }
  }
  return samples;
}

std::vector<std::pair<int, pid_t>> ProcessesIn(const std::string& out) {
  std::vector<std::pair<int, pid_t>> processes;
  ForEachLine(out, [&](std::istringstream words) {
    std::string rank_word, pid_word, begins;
    int rank = 0;
    pid_t pid = 0;
    if (words >> rank_word >> rank >> pid_word >> pid >> begins && begins == "begins")
      processes.emplace_back(rank, pid);
  });
  return processes;
}

std::map<int, int> StartsIn(const std::string& out) {
  std::map<int, int> starts;
  for (const auto& [rank, pid] : ProcessesIn(out)) ++starts[rank];
  return starts;
}

void ExpectSameTraining(const std::string& out, const std::string& reference, int64_t steps) {
  const auto expected = LossesIn(reference), losses = LossesIn(out);
  ASSERT_EQ(expected.size(), steps);
  for (int64_t step = 1; step <= steps; ++step) {
    ASSERT_TRUE(losses.contains(step)) << "no rank made step " << step;
    for (const auto& [rank, loss] : losses.at(step)) {
      EXPECT_EQ(loss, expected.at(step).at(rank)) << "step " << step << ", rank " << rank;
    }
  }
  EXPECT_EQ(ModelsIn(out), ModelsIn(reference));
}

std::string Death::HoldFlag() const { return absl::StrCat("--hold=", dies, ":", step, ":", place); }

std::ostream& operator<<(std::ostream& out, const Death& death) {
  return out << "rank " << death.dies << " of " << death.ranks << ", " << death.place << " of step " << death.step
             << (death.preload ? ", forked" : "");
}

}  // namespace ddprun::testing
