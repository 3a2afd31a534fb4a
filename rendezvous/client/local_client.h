#ifndef DDPRUN_RENDEZVOUS_CLIENT_LOCAL_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LOCAL_CLIENT_H_

#include <memory>
#include <string>

#include "rendezvous/client/client.h"
#include "rendezvous/server/driver.h"

namespace ddprun::rendezvous {

// Creates a Client of a driver in the same process, without gRPC and sockets. It can't break or fall silent, so its
// Join has in_process set and the server requires no heartbeats. A dedicated thread calls the driver and the handler.
// The driver must outlive the client; the destructor must not be called from the handler. For `user` see Join.
std::unique_ptr<Client> NewLocalClient(Driver* driver, Client::Handler handler, std::string user = "");

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LOCAL_CLIENT_H_
