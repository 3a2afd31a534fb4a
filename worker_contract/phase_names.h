#ifndef DDPRUN_WORKER_CONTRACT_PHASE_NAMES_H_
#define DDPRUN_WORKER_CONTRACT_PHASE_NAMES_H_

#include <string_view>

// Phases of a step that have a meaning to the launcher (docs/worker_protocol.md 3.2). A worker may report others.
namespace ddprun::worker_contract {

inline constexpr char kForwardPhase[] = "forward";
inline constexpr char kBackwardPhase[] = "backward";
inline constexpr char kOptimizerPhase[] = "optimizer";
// The ranks agree on stops, checkpoints and the like.
inline constexpr char kSyncPhase[] = "sync";
inline constexpr char kCheckpointPhase[] = "checkpoint";
inline constexpr char kEvaluationPhase[] = "evaluation";
// The training is over: no later activity of the worker, however long, counts as a hang.
inline constexpr char kFinishedPhase[] = "finished";
// The program has finished and only has to exit, with code 0.
inline constexpr char kExitingPhase[] = "exiting";

inline bool IsAfterTraining(std::string_view phase) { return phase == kFinishedPhase || phase == kExitingPhase; }

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_PHASE_NAMES_H_
