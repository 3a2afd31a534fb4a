// Ends as specified: `end_with exit N`, `signal N`, `throw TEXT`, `assert -` or `overflow -`.
#include <sys/resource.h>
#include <unistd.h>

#undef NDEBUG
#include <cassert>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace {

int Recurse(volatile char* caller) {
  volatile char frame[4096];
  frame[0] = *caller;
  return Recurse(frame) + frame[0];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 99;
  const int number = atoi(argv[2]);
  if (strcmp(argv[1], "exit") == 0) _exit(number);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (strcmp(argv[1], "throw") == 0) throw std::runtime_error(argv[2]);
  signal(SIGSEGV, SIG_DFL);  // not AddressSanitizer's
  if (strcmp(argv[1], "overflow") == 0) return Recurse(argv[1]);
  if (strcmp(argv[1], "assert") == 0) assert(number == 1 && "sizes differ");
  signal(number, SIG_DFL);
  kill(getpid(), number);
  while (true) pause();
}
