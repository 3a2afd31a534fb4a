#ifndef DDPRUN_RENDEZVOUS_CLIENT_LOCAL_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LOCAL_CLIENT_H_

#include <memory>
#include <string>

#include "rendezvous/client/client.h"
#include "rendezvous/server/driver.h"

namespace ddprun::rendezvous {

// A Client of a driver in the same process: no gRPC, no sockets, nothing that can break or fall silent, so its Join
// goes out with in_process set and the server asks for no heartbeats. One thread of its own speaks to the driver and
// calls the handler. The driver outlives the client; the destructor must not be called from the handler. `user`: as
// Join has it.
std::unique_ptr<Client> NewLocalClient(Driver* driver, Client::Handler handler, std::string user = "");

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LOCAL_CLIENT_H_
