#ifndef DDPRUN_LAUNCHER_IO_STANDARD_STREAMS_H_
#define DDPRUN_LAUNCHER_IO_STANDARD_STREAMS_H_

namespace ddprun::launcher {

// Opens /dev/null for each closed descriptor among 0, 1 and 2, so that no file opened later gets one of these numbers
// and with it the workers' output. Call it first in main.
void OpenMissingStandardStreams();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_IO_STANDARD_STREAMS_H_
