#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_RENDER_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_RENDER_H_

#include <string>

#include "rendezvous/core/effect.h"
#include "rendezvous/core/job_view.h"

namespace ddprun::rendezvous {

// One line that says all of a message, such as "assign round=1 group=0/2 ranks=0 of 4 ...".
std::string Render(const ServerMessage& message);

// "a <- ..." of a node of the job `home`, "x/a <- ..." of another job's.
std::string Render(const Effect& effect, const std::string& home);

// A line for the job and one for each node.
std::string Render(const JobView& view);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_RENDER_H_
