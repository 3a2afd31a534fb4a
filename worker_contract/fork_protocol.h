#ifndef DDPRUN_WORKER_CONTRACT_FORK_PROTOCOL_H_
#define DDPRUN_WORKER_CONTRACT_FORK_PROTOCOL_H_

namespace ddprun::worker_contract {

// Set for a program that ddprun --preload starts once, to fork workers from it: the number of a descriptor, a
// SOCK_SEQPACKET socket to the launcher. Messages are lists of fields separated by NUL:
//
//   launcher -> program
//     setup LAUNCHER_PID ...                      once
//     start TICKET CPU,... NAME=VALUE|NAME ...    a worker, with its stdout, stderr and gate; no CPU: as they are;
//                                                 NAME alone: unset it
//     go                                          forks all workers that were asked for since the last one
//   program -> launcher
//     ready SECONDS                               it has come to RunWorker
//     failed REASON                               no worker can be forked from here; it ends
//     changed FILE                                a file that it was loaded from is another one now; it ends
//     started TICKET PID                          sent by the worker itself, a child of the launcher by then; it
//                                                 goes on once it has read a byte from its gate, and ends if there is
//                                                 none
//     unforked TICKET REASON                      this worker could not be forked
inline constexpr char kForkServer[] = "DDPRUN_FORK_SERVER";

// A program that can do that contains the two in a row. The launcher looks for them before it starts a program without
// a rank, and must not contain them itself.
#define DDPRUN_FORK_SERVER_MARK_BEGIN "ddprun worker runtime: "
#define DDPRUN_FORK_SERVER_MARK_END "can fork workers, protocol 2"

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_FORK_PROTOCOL_H_
