#ifndef DDPRUN_WORKER_CONTRACT_FORK_PROTOCOL_H_
#define DDPRUN_WORKER_CONTRACT_FORK_PROTOCOL_H_

namespace ddprun::worker_contract {

// Set for a program that ddprun --preload starts once in order to fork workers from it: the number of a descriptor, a
// SOCK_SEQPACKET socket to the launcher. Messages are lists of fields separated by NUL:
//
//   launcher -> program
//     setup LAUNCHER_PID ...                      once
//     start TICKET CPU,... NAME=VALUE|NAME ...    start a worker, with its stdout, stderr and gate; no CPU: the
//                                                 affinity is unchanged; NAME alone: unset it
//     go                                          fork all workers requested since the last `go`
//   program -> launcher
//     ready SECONDS                               it has reached RunWorker
//     failed REASON                               it cannot fork workers; it ends
//     changed FILE                                a file that it was loaded from has been replaced; it ends
//     started TICKET PID                          sent by the worker itself, by then a child of the launcher; it
//                                                 continues after reading a byte from its gate, and ends if there is
//                                                 none
//     unforked TICKET REASON                      this worker could not be forked
inline constexpr char kForkServer[] = "DDPRUN_FORK_SERVER";

// A program that supports this contains the two strings in a row. The launcher looks for them before it starts a
// program without a rank, and must not contain them itself.
#define DDPRUN_FORK_SERVER_MARK_BEGIN "ddprun worker runtime: "
#define DDPRUN_FORK_SERVER_MARK_END "can fork workers, protocol 2"

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_FORK_PROTOCOL_H_
