#ifndef DDPRUN_RENDEZVOUS_SERVER_EFFECT_LOG_H_
#define DDPRUN_RENDEZVOUS_SERVER_EFFECT_LOG_H_

#include <string>
#include <vector>

#include "rendezvous/core/effect.h"

namespace ddprun::rendezvous {

// The state changes of jobs that `effects` announce, one line each and once per job, not per node. Thread-safe.
std::vector<std::string> DescribeEffects(const Effects& effects);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EFFECT_LOG_H_
