#ifndef DDPRUN_WORKER_CONTRACT_PROCESS_COPY_H_
#define DDPRUN_WORKER_CONTRACT_PROCESS_COPY_H_

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

// Looking into a process in which any lock may be held and any data be half changed: in a copy of it, which may block
// or crash. Needs the C library only.
namespace ddprun::worker_contract {

// Runs `print` in a copy of this process, which has the calling thread only, and waits for it, `seconds` at most. What
// it has written before it ends or crashes is kept. The caller makes system calls alone; in the copy any call may be
// made, and may never return.
template <typename Print>
void InCopy(int seconds, const Print& print) {
  // Not fork(), which waits for locks that may be held. The copy sends no SIGCHLD when it ends.
  const long copy = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
  if (copy == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it has this process's connections
    for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM}) signal(fatal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    alarm(static_cast<unsigned>(seconds));
    print();
    _exit(0);
  }
  if (copy < 0) return;
  while (waitpid(static_cast<pid_t>(copy), nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

// Sets `pointer` to a function or an object of this program or one of its libraries. False: there is none.
template <typename Pointer>
bool FindSymbol(const char* name, Pointer* pointer) {
  *pointer = reinterpret_cast<Pointer>(dlsym(RTLD_DEFAULT, name));
  return *pointer != nullptr;
}

// Functions of the interpreter that lead from a thread to the files, lines and functions of its frames.
struct PythonFrames {
  using Object = void*;

  Object (*make_current)(Object thread);
  Object (*frame_of)(Object thread);
  Object (*code_of)(Object frame);
  Object (*caller_of)(Object frame);
  int (*line_of)(Object frame);
  Object (*attribute)(Object object, const char* name);
  const char* (*text_of)(Object string);

  bool FindAll() {
    return FindSymbol("PyThreadState_Swap", &make_current) && FindSymbol("PyThreadState_GetFrame", &frame_of) &&
           FindSymbol("PyFrame_GetCode", &code_of) && FindSymbol("PyFrame_GetBack", &caller_of) &&
           FindSymbol("PyFrame_GetLineNumber", &line_of) && FindSymbol("PyObject_GetAttrString", &attribute) &&
           FindSymbol("PyUnicode_AsUTF8", &text_of);
  }

  // Prints `  File "train.py", line 31 in load`, as faulthandler does. False: the interpreter is not able to tell.
  bool PrintLine(int out, Object code, int line) const {
    const Object file = attribute(code, "co_filename");
    const Object name = attribute(code, "co_name");
    if (file == nullptr || name == nullptr) return false;
    dprintf(out, "  File \"%s\", line %d in %s\n", text_of(file), line, text_of(name));
    return true;
  }
};

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_PROCESS_COPY_H_
