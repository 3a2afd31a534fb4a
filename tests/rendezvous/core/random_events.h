#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_RANDOM_EVENTS_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_RANDOM_EVENTS_H_

#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/effect.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// One thing that happens to a server.
struct Said {
  std::string job_id, node_id;
  uint64_t incarnation;
  LauncherMessage message;
};
struct StreamClosed {
  std::string job_id, node_id;
  uint64_t incarnation;
};
struct TimePasses {
  bool to_deadline;  // else `by`
  absl::Duration by;
};
struct ServerRestarts {};  // keeps its records, if it has any
using RandomEvent = std::variant<Said, StreamClosed, TimePasses, ServerRestarts>;

// Launchers that send mostly valid messages in random order, and now and then invalid ones. Deterministic: equal seeds
// and equal answers give equal events.
class RandomLaunchers {
 public:
  explicit RandomLaunchers(uint64_t seed);

  RandomEvent Next();
  // Launchers hear what the server says.
  void Hear(const Effects& effects);

  struct Launcher {
    Join join = NewJoin();
    bool joined = false;  // ever
    bool connected = false;
    bool keep = false;  // its workers, as it was told last
    bool left_out = false, owes_answer = false;
  };
  const std::vector<Launcher>& launchers() const { return launchers_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Below(n) == 0; }
  Launcher* Find(const std::string& job_id, const std::string& node_id, uint64_t incarnation);
  RandomEvent JoinAs(Launcher* launcher);
  RandomEvent Act(Launcher* launcher);
  LauncherMessage Lie(const Launcher& launcher);
  Ready ReadyAfter(const Launcher& launcher) const;
  WorkerFailed Failure(uint64_t round);
  std::vector<Survivor> SomeSurvivors(int slots);
  Said Say(const Launcher& launcher, LauncherMessage message);

  std::mt19937_64 random_;
  JobSettings settings_ = DefaultSettings();
  std::vector<Launcher> launchers_;
  std::vector<StreamClosed> leaving_;  // streams of launchers that wait for their workers
  int next_port_ = 1;
  bool lies_;
  bool unlucky_;  // nearly all failures are the first launcher's
  int plain_;     // one launcher in so many can't keep its workers
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_RANDOM_EVENTS_H_
