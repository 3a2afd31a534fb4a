#ifndef DDPRUN_TESTS_LAUNCHER_MACHINE_WELCOME_H_
#define DDPRUN_TESTS_LAUNCHER_MACHINE_WELCOME_H_

#include "absl/time/time.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// The Welcome of a server that asks for a heartbeat in each `interval`; infinite: of one in this process.
inline rendezvous::Welcome WelcomeEvery(absl::Duration interval) {
  return rendezvous::NewWelcome(interval, interval * rendezvous::kBeatsPerTimeout);
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_MACHINE_WELCOME_H_
