#ifndef DDPRUN_TESTS_EXPLORER_EXPLORE_H_
#define DDPRUN_TESTS_EXPLORER_EXPLORE_H_

#include <cstddef>
#include <string>

#include "tests/explorer/world.h"

namespace ddprun::testing {

struct Exploration {
  size_t states = 0;
  size_t transitions = 0;
  size_t ends = 0;        // states in which all launchers have ended
  size_t depth = 0;       // the longest way without repetition that was taken
  std::string violation;  // empty: none
  std::string history;    // history that leads to it
  std::string unequal;    // not empty: states of one digest have different futures, as this history shows
};

// Visits every state of the world, or stops at the first violation of an invariant or after `most` states. Then the
// fourth invariant is checked: from every state some order of events leads to the end of all launchers.
// `compare`: states of one digest are compared by the digests of their successors, which takes some times as long.
Exploration Explore(const World::Settings& settings, size_t most = 20'000'000, bool compare = false);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXPLORER_EXPLORE_H_
