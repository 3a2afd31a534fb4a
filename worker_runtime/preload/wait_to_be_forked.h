#ifndef DDPRUN_WORKER_RUNTIME_PRELOAD_WAIT_TO_BE_FORKED_H_
#define DDPRUN_WORKER_RUNTIME_PRELOAD_WAIT_TO_BE_FORKED_H_

namespace ddprun {

// Called in a program that ddprun --preload has started to fork workers from it (worker_contract/fork_protocol.h):
// waits, and returns only in workers, each a process of its own with the environment, streams, session and parent that
// the launcher would have started it with. Ends the process if workers can't be forked from it: it has other threads,
// an accelerator's device is open, or it is not a child of the launcher; the launcher then starts the workers one by
// one. Returns at once in any other process. Call it from the main thread, before any code reads the rank.
void WaitToBeForked();

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PRELOAD_WAIT_TO_BE_FORKED_H_
