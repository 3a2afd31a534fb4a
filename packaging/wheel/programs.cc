// All commands of the wheel: they share nearly all of their code, and a wheel can't hold a link to a file.
// rendezvousd.c starts this program under the others' names.
#include <sys/prctl.h>

#include <cstring>

// The `main` functions of launcher/ddprun_main.cc, rendezvous/daemon/rendezvousd_main.cc and
// ddprunctl/ddprunctl_main.cc.
int DdprunMain(int argc, char** argv);
int DdprunctlMain(int argc, char** argv);
int RendezvousdMain(int argc, char** argv);

int main(int argc, char** argv) {
  if (argc > 0 && strcmp(basename(argv[0]), "rendezvousd") == 0) {
    prctl(PR_SET_NAME, "rendezvousd");
    return RendezvousdMain(argc, argv);
  }
  if (argc > 0 && strcmp(basename(argv[0]), "ddprunctl") == 0) {
    prctl(PR_SET_NAME, "ddprunctl");
    return DdprunctlMain(argc, argv);
  }
  return DdprunMain(argc, argv);
}
