// Preloaded into ranks that share a GPU: NCCL takes processes with different NCCL_HOSTID for processes of different
// hosts, and then allows it. A forked worker (--preload) gets a value of its own.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void set_host_id(void) {
  char text[32];
  snprintf(text, sizeof text, "rank-of-pid-%d", (int)getpid());
  setenv("NCCL_HOSTID", text, 1);
}

__attribute__((constructor)) static void start(void) {
  set_host_id();
  pthread_atfork(NULL, NULL, set_host_id);
}
