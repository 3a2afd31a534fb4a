#include "rendezvous/http/process_numbers.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace ddprun::http {
namespace {

// Number of fields in /proc/self/stat between the name in brackets, which may contain anything, and the start time; the
// first one is the state (field 3).
constexpr int kFieldsBeforeStartTime = 19;

double StartTime() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 0; i < kFieldsBeforeStartTime; ++i) fields >> field;
  double ticks = 0;
  fields >> ticks;
  timespec real;
  timespec since_boot;
  clock_gettime(CLOCK_REALTIME, &real);
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return static_cast<double>(real.tv_sec - since_boot.tv_sec) + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double CountFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

ProcessNumbers ReadProcessNumbers() {
  ProcessNumbers numbers;
  timespec cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  numbers.cpu_seconds = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9;
  double pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  numbers.resident_bytes = pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  numbers.open_files = CountFiles();
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) numbers.max_files = static_cast<double>(limit.rlim_cur);
  static const double start = StartTime();  // the clocks may be set; the start does not change
  numbers.start_time_seconds = start;
  return numbers;
}

}  // namespace ddprun::http
