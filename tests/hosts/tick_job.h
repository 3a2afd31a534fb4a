#ifndef DDPRUN_TESTS_HOSTS_TICK_JOB_H_
#define DDPRUN_TESTS_HOSTS_TICK_JOB_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "tests/hosts/hosts.h"
#include "tests/testing/process.h"

namespace ddprun::testing {

// One line of tests/testbin/tick.cc.
struct Tick {
  int round = 0;
  int world = 0;
  int pid = 0;
  SteadyTime at;
};

// A job of real launchers on consecutive hosts, the first of which hosts the rendezvous server. The workers record when
// they ran.
class TickJob {
 public:
  struct Node {
    int workers = 1;
    std::string program = "tests/testbin/tick";
  };
  struct Settings {
    int first_host = 1;
    std::string nnodes;
    std::vector<Node> nodes;
    absl::Duration heartbeat_timeout = absl::Seconds(3);
    bool stubborn = false;  // workers ignore SIGTERM
  };

  TickJob(const Hosts* hosts, const Settings& settings);

  std::vector<Tick> Ticks() const;
  // True if all workers of a round with all nodes have ticked after that time.
  bool IsWhole(SteadyTime after) const;
  // Lets the workers succeed and waits for the launchers.
  void EndWell();
  void ExpectOneWorldAtATime() const;
  int rounds() const;
  std::string Said() const;
  Process& launcher(int node) { return *launchers_[node]; }

 private:
  TempDir dir_;
  int world_ = 0;
  std::vector<std::unique_ptr<Process>> launchers_;
};

// Sleeps: the tests are about the duration of faults.
void PassUntil(SteadyTime time);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_HOSTS_TICK_JOB_H_
