#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_OUTPUT_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_OUTPUT_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::testing {

// These functions parse the output of elastic_program.

// Loss that each rank printed for each step ("step"), or after each number of steps ("evaluation"). A loss that a rank
// printed twice must be the same both times.
std::map<int64_t, std::map<int, std::string>> LossesIn(const std::string& out, const std::string& what = "step");

// Hash of the final model that each rank printed.
std::map<int, std::string> ModelsIn(const std::string& out);

// Samples of each epoch that belong to a committed step (elastic_program --ledger). If several rounds committed a step,
// the last one counts, because the earlier commits were lost. Fails the test if a step was committed without the
// batches of all its ranks.
std::map<int64_t, std::multiset<int64_t>> CommittedSamplesIn(const std::string& out);

// Ranks and process ids of all workers that began, in that order.
std::vector<std::pair<int, pid_t>> ProcessesIn(const std::string& out);

// Number of processes that began as each rank.
std::map<int, int> StartsIn(const std::string& out);

// Expects that `out` has all steps up to `steps`, with the losses and final models of `reference`, the output of a
// training without failures.
void ExpectSameTraining(const std::string& out, const std::string& reference, int64_t steps);

// A worker that dies at a place of a step (elastic_program --hold).
struct Death {
  int ranks;
  int dies;
  std::string place;
  int64_t step;
  bool preload = false;

  std::string HoldFlag() const;
};
std::ostream& operator<<(std::ostream& out, const Death& death);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_OUTPUT_H_
