#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_OUTPUT_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_OUTPUT_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

// What elastic_program has printed.
namespace ddprun::testing {

// For each step ("step"), or after each number of steps ("evaluation"), the loss that each rank printed. One that a
// rank printed twice must be the same.
std::map<int64_t, std::map<int, std::string>> LossesIn(const std::string& out, const std::string& what = "step");

// The hash of its model that each rank printed at the end.
std::map<int, std::string> ModelsIn(const std::string& out);

// The samples of each epoch that are part of a committed step, as often as they are (elastic_program --ledger). A step
// that several rounds committed counts as it was last: what was committed before had been lost. Fails the test if a
// step was committed without the batches of all its ranks.
std::map<int64_t, std::multiset<int64_t>> CommittedSamplesIn(const std::string& out);

// Ranks and process ids of all that began, in that order.
std::vector<std::pair<int, pid_t>> ProcessesIn(const std::string& out);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_OUTPUT_H_
