#ifndef DDPRUN_RENDEZVOUS_SERVER_EFFECT_LOG_H_
#define DDPRUN_RENDEZVOUS_SERVER_EFFECT_LOG_H_

#include <string>
#include <vector>

#include "rendezvous/core/effect.h"

namespace ddprun::rendezvous {

// Describes the job state changes in `effects`, one line each, once per job rather than per node. Thread-safe.
std::vector<std::string> DescribeEffects(const Effects& effects);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EFFECT_LOG_H_
