#include "tests/worker_runtime/elastic/elastic_output.h"

#include <gtest/gtest.h>

#include <sstream>

namespace ddprun::testing {

std::map<int64_t, std::map<int, std::string>> LossesIn(const std::string& out) {
  std::map<int64_t, std::map<int, std::string>> losses;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, rank_word, loss_word, loss;
    int64_t step = 0;
    int rank = 0;
    if (!(words >> first >> step >> rank_word >> rank >> loss_word >> loss) || loss_word != "loss") continue;
    const auto [kept, is_new] = losses[step].emplace(rank, loss);
    if (!is_new) {
      EXPECT_EQ(kept->second, loss) << "step " << step << " of rank " << rank << " was made twice";
    }
  }
  return losses;
}

std::map<int, std::string> ModelsIn(const std::string& out) {
  std::map<int, std::string> models;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string end, rank_word, model_word, hash;
    int rank = 0;
    if (words >> end >> rank_word >> rank >> model_word >> hash && end == "end") models[rank] = hash;
  }
  return models;
}

std::vector<std::pair<int, pid_t>> ProcessesIn(const std::string& out) {
  std::vector<std::pair<int, pid_t>> processes;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string rank_word, pid_word, begins;
    int rank = 0;
    pid_t pid = 0;
    if (words >> rank_word >> rank >> pid_word >> pid >> begins && begins == "begins")
      processes.emplace_back(rank, pid);
  }
  return processes;
}

}  // namespace ddprun::testing
