// All commands of the wheel: they share nearly all of their code, and a wheel can't hold a link to a file.
// rendezvousd.c starts this program under the others' names.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>

// The `main` functions of launcher/ddprun_main.cc, rendezvous/daemon/rendezvousd_main.cc and
// ddprunctl/ddprunctl_main.cc.
int DdprunMain(int argc, char** argv);
int DdprunctlMain(int argc, char** argv);
int RendezvousdMain(int argc, char** argv);

namespace {

// Set by ddprun.run() to its process id: the launcher ends with the Python program, even if that is killed by SIGKILL.
constexpr char kParentVariable[] = "DDPRUN_ENDS_WITH_PROCESS";

void EndWithParent() {
  const char* parent = getenv(kParentVariable);
  if (parent == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The parent may have ended before prctl.
  if (getppid() != atoi(parent)) raise(SIGTERM);
  // Workers must not inherit the variable.
  unsetenv(kParentVariable);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 0 && strcmp(basename(argv[0]), "rendezvousd") == 0) {
    prctl(PR_SET_NAME, "rendezvousd");
    return RendezvousdMain(argc, argv);
  }
  if (argc > 0 && strcmp(basename(argv[0]), "ddprunctl") == 0) {
    prctl(PR_SET_NAME, "ddprunctl");
    return DdprunctlMain(argc, argv);
  }
  EndWithParent();
  return DdprunMain(argc, argv);
}
