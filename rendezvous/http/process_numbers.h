#ifndef DDPRUN_RENDEZVOUS_HTTP_PROCESS_NUMBERS_H_
#define DDPRUN_RENDEZVOUS_HTTP_PROCESS_NUMBERS_H_

#include "rendezvous/http/server_view.h"

namespace ddprun::http {

// Reads the current values of this process. Thread-safe.
ProcessNumbers ReadProcessNumbers();

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_PROCESS_NUMBERS_H_
