#include "worker_runtime/report_progress.h"

#include "worker_runtime/base/launcher_link.h"

namespace ddprun {

void ReportProgress(const StepProgress& progress) {
  LauncherLink::OfProcess().Report({progress.step, progress.samples, progress.phase, progress.loss});
}

}  // namespace ddprun
