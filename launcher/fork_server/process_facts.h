#ifndef DDPRUN_LAUNCHER_FORK_SERVER_PROCESS_FACTS_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_PROCESS_FACTS_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

// Facts that a process created by this one inherits, apart from environment, working folder and descriptors, and the
// identity of this ddprun: one line for each, its name first. A kept fork server serves only jobs with equal facts,
// because most of them can't be changed without privileges. Takes less than a millisecond.
std::vector<std::string> ProcessFacts();

// Identity of a file: device, inode, size, times of the last write and change; empty if it can't be read.
std::string StampText(const std::string& file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_PROCESS_FACTS_H_
