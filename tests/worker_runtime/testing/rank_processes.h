#ifndef DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANK_PROCESSES_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANK_PROCESSES_H_

#include <limits.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"

namespace ddprun::testing {

inline std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// Ranks of a job without a launcher, each a process that runs rank_program; rank 0 hosts the store. The ranks in
// `left_out`, which must be the last ones, are not started.
class RankProcesses {
 public:
  RankProcesses(int n, const std::string& behaviour, int timeout_seconds = 30,
                std::map<std::string, std::string> environment = {}, std::set<int> left_out = {},
                const std::string& device = "cpu") {
    environment.insert({{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", absl::StrCat(FreePort())},
                        {"WORLD_SIZE", absl::StrCat(n)},
                        {"OMP_NUM_THREADS", "1"}});
    for (int rank = 0; rank < n; ++rank) {
      if (left_out.contains(rank)) continue;
      std::map<std::string, std::string> own = environment;
      own["RANK"] = own["LOCAL_RANK"] = absl::StrCat(rank);
      if (own.contains("TORCHELASTIC_ERROR_FILE")) absl::StrAppend(&own["TORCHELASTIC_ERROR_FILE"], ".", rank);
      ranks_.push_back(
          std::make_unique<Process>(std::vector<std::string>{"tests/worker_runtime/testing/rank_program", behaviour,
                                                             absl::StrCat(timeout_seconds), device},
                                    own));
    }
  }

  Process& operator[](int rank) { return *ranks_[rank]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // The rank as error messages name it.
  std::string NameOf(int rank) {
    return absl::StrCat("rank ", rank, " (host ", HostName(), ", pid ", ranks_[rank]->pid(), ")");
  }

  // Waits until all have created their group; false if one ended first.
  bool Ready() {
    bool ready = true;
    for (int rank = 0; rank < size(); ++rank) ready &= ranks_[rank]->WaitForOut(absl::StrCat("rank ", rank, " ready"));
    return ready;
  }

 private:
  std::vector<std::unique_ptr<Process>> ranks_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANK_PROCESSES_H_
