#ifndef DDPRUN_LAUNCHER_OS_STANDARD_STREAMS_H_
#define DDPRUN_LAUNCHER_OS_STANDARD_STREAMS_H_

namespace ddprun::launcher {

// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that nothing opened later takes their
// place and gets the output of workers. The first thing that main does.
void OpenMissingStandardStreams();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_STANDARD_STREAMS_H_
