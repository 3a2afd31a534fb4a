#ifndef DDPRUN_WORKER_CONTRACT_PHASE_NAMES_H_
#define DDPRUN_WORKER_CONTRACT_PHASE_NAMES_H_

#include <string_view>

// Phases of a step that launcher and worker know by name (docs/worker_protocol.md 3.2). A worker may report others.
namespace ddprun::worker_contract {

inline constexpr char kForwardPhase[] = "forward";
inline constexpr char kBackwardPhase[] = "backward";
inline constexpr char kOptimizerPhase[] = "optimizer";
// The ranks agree on something.
inline constexpr char kSyncPhase[] = "sync";
inline constexpr char kCheckpointPhase[] = "checkpoint";
inline constexpr char kEvaluationPhase[] = "evaluation";
// The training is over: whatever the worker does now, and however long, is no hang.
inline constexpr char kFinishedPhase[] = "finished";
// The program has run to its end, and all that is left to do is to exit, with code 0.
inline constexpr char kExitingPhase[] = "exiting";

inline bool IsAfterTraining(std::string_view phase) { return phase == kFinishedPhase || phase == kExitingPhase; }

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_PHASE_NAMES_H_
