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

// Runs of elastic_program: real workers, and in place of launcher and server a few lines that name the rounds, so that
// a test says what happens when.
class ElasticJob {
 public:
  // Starts `n` workers with these arguments, in round 1.
  ElasticJob(int n, std::vector<std::string> arguments);

  // The worker of this rank in the present round.
  Process& operator[](int rank) { return *members_[rank].process; }
  int size() const { return static_cast<int>(members_.size()); }

  // Kills it with SIGKILL, and waits until it is gone.
  void Kill(int rank);

  // Ends the round: survivors are told, and say what they hold.
  void Suspend(bool at_step_end = false);
  // Committed steps of the survivors, by their ranks in the round that was suspended.
  const std::map<int, std::optional<int64_t>>& held() const { return held_; }

  // The launcher's end of its worker link.
  FakeLauncher& link(int rank) { return *members_[rank].launcher; }

  // Begins the next round with `n` workers: survivors in their order, then newcomers in the places that are left. By
  // default newcomers take the ranks of the dead.
  void Begin(int n);
  void Begin() { Begin(size()); }

  // Of all ranks: 0 if all ended with 0, else the first other exit code.
  int Wait();

  // What all processes have printed, of all rounds.
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
