#ifndef DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/endpoint.h"
#include "base/steady_time.h"
#include "rendezvous/client/client.h"
#include "rendezvous/core/credentials.h"

namespace ddprun::rendezvous {

// Creates a Client over gRPC.
//
// Connecting: all addresses of the server's name are tried at once and the first that answers is used, on one
// connection (besides those of silent streams, see Client::Reset). Connected means that a rendezvous server answered;
// Disconnected is sent once per round over the addresses.
//
// Retries: the first attempt is immediate, and so is the first one after a stream that worked. Further waits start at
// 10 ms and double up to 1 s (4 s while nothing answers at all). An attempt times out after 5 s, later 10 s. After a
// stream that worked, attempts time out after `patience` at first, then after half of the time since the loss: packets
// that a cut network has dropped would be retransmitted by the kernel only after seconds.
//
// Errors: refused credentials are permanent. TLS handshake failures become permanent after ten seconds without any
// other result, because certificates may be about to be renewed.
//
// The destructor takes at most two seconds after Close; without Close it cuts the stream at once. It must not be called
// from the handler.
std::unique_ptr<Client> NewGrpcClient(const Endpoint& server, Client::Handler handler,
                                      absl::Duration patience = absl::Seconds(5), const Credentials& credentials = {});

// Creates a Client for several servers, of which one leads (protocol 4.8): all addresses of all servers are tried at
// once, and the leader's is used. REQUIRES: there is at least one server.
std::unique_ptr<Client> NewGrpcClient(const std::vector<Endpoint>& servers, Client::Handler handler,
                                      absl::Duration patience, const Credentials& credentials);

// Parts of this client, which block.

// True if `host` is an IPv4 or IPv6 address (without a zone), so that it need not be looked up.
bool IsAddress(const std::string& host);

// Returns the addresses of the server's host name with the server's port: "10.0.0.1:29400", "[fe80::1%eth0]:29400".
// Uses the system's resolver, which unlike gRPC's own uses /etc/hosts and all name services of the host.
//   NOT_FOUND  there is none; the message says why.
absl::StatusOr<std::vector<std::string>> LookUpAddresses(const Endpoint& server);

// True if a connection to `address` ("10.0.0.1:29400") is refused (ECONNREFUSED), so that no process listens there.
// False in all other cases: a process listens, no route, no answer by the deadline, an address that can't be parsed.
bool IsRefused(const std::string& address, SteadyTime deadline);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_H_
