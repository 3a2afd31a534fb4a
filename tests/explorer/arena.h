#ifndef DDPRUN_TESTS_EXPLORER_ARENA_H_
#define DDPRUN_TESTS_EXPLORER_ARENA_H_

#include <cstddef>
#include <string>

namespace ddprun::testing {

// The memory of one world: while a Scope exists, operator new takes memory from the arena. A copy of the used bytes is
// a copy of every object in it, whatever classes they are of; put back, the pointers are valid again. So a world
// returns to an earlier state without code that copies Registries and AgentMachines. For one thread. There is one arena
// per process.
class Arena {
 public:
  class Scope {
   public:
    Scope();
    ~Scope();
  };

  // Frees everything that was allocated in scopes.
  static void Clear();
  static std::string Save();
  static void Restore(const std::string& saved);
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXPLORER_ARENA_H_
