#ifndef DDPRUN_LAUNCHER_CRASH_REPORT_FIND_SYMBOL_H_
#define DDPRUN_LAUNCHER_CRASH_REPORT_FIND_SYMBOL_H_

#include <dlfcn.h>

namespace ddprun::launcher {

// Sets `pointer` to a function or an object of this program or one of its libraries. False: there is none.
template <typename Pointer>
bool FindSymbol(const char* name, Pointer* pointer) {
  *pointer = reinterpret_cast<Pointer>(dlsym(RTLD_DEFAULT, name));
  return *pointer != nullptr;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CRASH_REPORT_FIND_SYMBOL_H_
