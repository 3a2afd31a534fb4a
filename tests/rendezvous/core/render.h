#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_RENDER_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_RENDER_H_

#include <string>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/effect.h"

namespace ddprun::rendezvous {

// "a <- ..." of a node of the job `home`, "x/a <- ..." of another job's.
std::string Render(const Effect& effect, const std::string& home);

// "a b <- ..." of nodes that got the same message, or assignments that differ in their ranks only: "group=0,1/2".
std::string Render(const std::vector<Tell>& tells, const std::string& home);
bool EqualButRanks(const Tell& a, const Tell& b);

// A line for the job and one for each node, which is named by its address.
std::string Render(const v1::Job& job);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_RENDER_H_
