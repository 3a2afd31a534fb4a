/* A worker that uses its round's store as TCPStore's clients do: BENCH_OPERATIONS pairs of SET and GET of its own keys.
 * Rank 0 instead sends PINGs until all other ranks are done. Each appends "RANK LONGEST_NS WALL_NS" to the file named
 * by BENCH_FILE: the longest response time, and the total time. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kSet = 1, kGet = 3, kAdd = 4, kPing = 13 };

static int fd;
static int64_t longest;

static int64_t Now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void Die(const char* what) {
  perror(what);
  exit(1);
}

static char* PutText(char* at, const char* text) {
  const uint64_t size = strlen(text);
  memcpy(at, &size, 8);
  memcpy(at + 8, text, size);
  return at + 8 + size;
}

/* Sends a request and reads `answer` bytes. */
static void Ask(const char* request, size_t size, void* answer, size_t wanted) {
  const int64_t began = Now();
  if (write(fd, request, size) != (ssize_t)size) Die("write");
  for (size_t got = 0; got < wanted;) {
    const ssize_t n = read(fd, (char*)answer + got, wanted - got);
    if (n <= 0) Die("read");
    got += (size_t)n;
  }
  const int64_t took = Now() - began;
  if (took > longest) longest = took;
}

static int64_t Add(const char* key, int64_t delta) {
  char request[64] = {kAdd};
  char* end = PutText(request + 1, key);
  memcpy(end, &delta, 8);
  int64_t value;
  Ask(request, (size_t)(end + 8 - request), &value, 8);
  return value;
}

static void Ping(uint32_t nonce) {
  char request[5] = {kPing};
  memcpy(request + 1, &nonce, 4);
  uint32_t answer;
  Ask(request, sizeof request, &answer, 4);
}

int main(void) {
  const int rank = atoi(getenv("RANK")), world = atoi(getenv("WORLD_SIZE"));
  const int operations = atoi(getenv("BENCH_OPERATIONS"));
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT")))};
  if (inet_pton(AF_INET, getenv("MASTER_ADDR"), &address.sin_addr) != 1) Die("MASTER_ADDR");
  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr*)&address, sizeof address) != 0) Die("connect");
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (write(fd, "\x00\xce\xf7\x85\x3c", 5) != 5) Die("write");
  Ping((uint32_t)getpid());
  Add("init/", 1);
  while (Add("init/", 0) < world) usleep(20000);  /* all ranks have connected; excludes the start */
  longest = 0;
  const int64_t began = Now();
  if (rank == 0) {
    while (Add("/done", 0) < world - 1) {
      for (int i = 0; i < 20; ++i) {
        Ping((uint32_t)getpid());
        usleep(500);
      }
    }
  } else {
    for (int i = 0; i < operations; ++i) {
      char key[32], request[256] = {kSet}, answer[8 + 8];
      snprintf(key, sizeof key, "/%d/%d", rank, i);
      char* end = PutText(PutText(request + 1, key), "8 bytes.");
      *end = kGet;  /* a SET has no response, the GET after it has one */
      end = PutText(end + 1, key);
      Ask(request, (size_t)(end - request), answer, sizeof answer);
    }
    Add("/done", 1);
  }
  char line[96];
  const long long lasted = Now() - began;
  const int length = snprintf(line, sizeof line, "%d %lld %lld\n", rank, (long long)longest, lasted);
  const int file = open(getenv("BENCH_FILE"), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0 || write(file, line, (size_t)length) != length) Die("BENCH_FILE");
  return 0;
}
