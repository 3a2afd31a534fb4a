#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_JOB_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_JOB_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/launcher/store/store_on_loop.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/elastic/fake_launcher.h"

namespace ddprun::testing {

// Runs elastic_program as real workers. The test takes the place of launcher and server: it decides when rounds end and
// begin.
class ElasticJob {
 public:
  // Starts `n` workers with these arguments, in round 1.
  ElasticJob(int n, std::vector<std::string> arguments);

  // The worker of this rank in the current round.
  Process& operator[](int rank) { return *members_[rank].process; }
  int size() const { return static_cast<int>(members_.size()); }

  // Sends SIGKILL to the worker, and waits for its end. KillHolding first waits until it holds at `place`.
  void Kill(int rank);
  void KillHolding(int rank, const std::string& place = "forward");

  // Ends the round: suspends the survivors and collects their committed steps.
  void Suspend(bool at_step_end = false);
  // Committed steps of the survivors, by their ranks in the round that was suspended.
  const std::map<int, std::optional<int64_t>>& held() const { return held_; }

  // The launcher's end of the worker's link.
  FakeLauncher& link(int rank) { return *members_[rank].launcher; }

  // Begins the next round with `n` workers (default: as many as before): survivors keep their order, newcomers get the
  // remaining ranks, by default those of the dead.
  void Begin(int n);
  void Begin() { Begin(size()); }

  void NextRound() {
    Suspend();
    Begin();
  }

  // Waits for all ranks. Returns 0 if all exited with 0, otherwise the first other exit code.
  int Wait();

  // Output of all processes of all rounds; Err has that of the current ones only.
  std::string Out();
  std::string Err();

 private:
  struct Member {
    std::unique_ptr<FakeLauncher> launcher;
    std::unique_ptr<Process> process;
    bool dead = false;
  };
  Member Start(int rank, int n);

  const std::vector<std::string> arguments_;
  uint64_t round_ = 1;
  std::unique_ptr<launcher::StoreOnLoop> store_;
  std::vector<Member> members_;
  std::vector<Member> gone_;
  std::map<int, std::optional<int64_t>> held_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_ELASTIC_JOB_H_
