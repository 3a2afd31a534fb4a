#ifndef DDPRUN_WORKER_CONTRACT_ANSWERS_H_
#define DDPRUN_WORKER_CONTRACT_ANSWERS_H_

// Answers questions of the launcher about this process, whatever its threads do (docs/worker_protocol.md 7): which
// collectives it has entered, from c10d's flight recorders, and where its Python threads are, if it has any. Needs the
// C library only; the recorders are looked up in the LibTorch that the process has loaded.
namespace ddprun::worker_contract {

// Starts the thread that answers, unless this process has it already or no launcher asks. To be called when the first
// process group is made, and again in a forked child that makes one. The caller must be allowed to read the
// environment. Thread-safe.
void AnswerQuestions();

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_ANSWERS_H_
