#ifndef DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "rendezvous/client/client.h"
#include "rendezvous/core/credentials.h"

namespace ddprun::rendezvous {

// A Client over gRPC. All addresses of the server's name are tried at once; the first that answers is used, on one
// connection (but for those of silent streams, see Client::Reset). It begins to connect at once, and again at once
// after a stream that worked broke, else after 10 ms, doubling to a second (4 s while nothing answers at all). Each try
// is given up after 5 s, later 10 s; those after a stream that worked first after `patience`, then after half of the
// time since it was lost: what a cut network has swallowed the kernel would send again only after seconds. Connected
// means that a rendezvous server answered. Disconnected comes once for each round over the addresses of a name. The
// destructor takes at most two seconds (after Close; else it cuts the stream and takes none) and must not be called
// from the handler. Refused credentials are permanent; TLS handshakes that fail are so after ten seconds of nothing
// else, because certificates may be about to be renewed.
std::unique_ptr<Client> NewGrpcClient(const Endpoint& server, Client::Handler handler,
                                      absl::Duration patience = absl::Seconds(5), const Credentials& credentials = {});

// The same for several servers, of which one leads (protocol 4.8): all addresses of all of them are tried at once, and
// the one that leads is taken. REQUIRES: there is at least one.
std::unique_ptr<Client> NewGrpcClient(const std::vector<Endpoint>& servers, Client::Handler handler,
                                      absl::Duration patience, const Credentials& credentials);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_H_
