/* A rank in C: c_program collectives | loop | elastic. Prints what it got. */
#define _POSIX_C_SOURCE 200809L /* pause, getpid */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddprun_worker.h"

static int failures = 0;

static void Expect(int ok, const char* what) {
  if (ok) return;
  ++failures;
  printf("FAILED: %s (last error: %s)\n", what, ddprun_last_error());
}

static void ExpectError(int code, int expected, const char* text) {
  if (code == expected && strcmp(ddprun_last_error(), text) == 0) return;
  ++failures;
  printf("FAILED: code %d, \"%s\"; expected %d, \"%s\"\n", code, ddprun_last_error(), expected, text);
}

/* all_reduce of {rank + 1, 2} in each dtype, on two ranks. */
#define ALL_REDUCE(type, dtype, one, two, three, four)                                           \
  do {                                                                                           \
    type values[2] = {rank == 0 ? (one) : (two), (two)};                                         \
    Expect(ddprun_all_reduce(worker, values, 2, dtype, DDPRUN_SUM) == DDPRUN_OK, "sum " #dtype); \
    Expect(values[0] == (three) && values[1] == (four), "numbers of " #dtype);                   \
  } while (0)

static void Collectives(ddprun_worker* worker) {
  const int rank = ddprun_rank(worker);
  ALL_REDUCE(float, DDPRUN_FLOAT32, 1, 2, 3, 4);
  ALL_REDUCE(double, DDPRUN_FLOAT64, 1, 2, 3, 4);
  ALL_REDUCE(uint16_t, DDPRUN_FLOAT16, 0x3c00, 0x4000, 0x4200, 0x4400);
  ALL_REDUCE(uint16_t, DDPRUN_BFLOAT16, 0x3f80, 0x4000, 0x4040, 0x4080);
  ALL_REDUCE(int8_t, DDPRUN_INT8, 1, 2, 3, 4);
  ALL_REDUCE(uint8_t, DDPRUN_UINT8, 1, 2, 3, 4);
  ALL_REDUCE(int32_t, DDPRUN_INT32, 1, 2, 3, 4);
  ALL_REDUCE(int64_t, DDPRUN_INT64, 1, 2, 3, 4);

  const double expected[] = {3, 1.5, 1, 2, 2}; /* results for 1 and 2, one per ddprun_op */
  for (int op = DDPRUN_SUM; op <= DDPRUN_PRODUCT; ++op) {
    double value = rank + 1;
    Expect(ddprun_all_reduce(worker, &value, 1, DDPRUN_FLOAT64, op) == DDPRUN_OK, "op");
    Expect(value == expected[op], "number of an op");
  }

  float first[1] = {(float)rank}, second[3] = {1, 2, (float)rank};
  void* arrays[] = {first, NULL, second};
  const int64_t counts[] = {1, 0, 3};
  Expect(ddprun_all_reduce_arrays(worker, arrays, counts, 3, DDPRUN_FLOAT32, DDPRUN_SUM) == DDPRUN_OK, "arrays");
  Expect(first[0] == 1 && second[0] == 2 && second[1] == 4 && second[2] == 1, "numbers of arrays");

  int32_t number = 10 + rank, both[2] = {0, 0}, mine = 0;
  Expect(ddprun_all_gather(worker, &number, both, 1, DDPRUN_INT32) == DDPRUN_OK, "all_gather");
  Expect(both[0] == 10 && both[1] == 11, "numbers of all_gather");
  Expect(ddprun_reduce_scatter(worker, both, &mine, 1, DDPRUN_INT32, DDPRUN_SUM) == DDPRUN_OK, "reduce_scatter");
  Expect(mine == (rank == 0 ? 20 : 22), "number of reduce_scatter");
  Expect(ddprun_broadcast(worker, &number, 1, DDPRUN_INT32, 1) == DDPRUN_OK && number == 11, "broadcast");

  double left = 0;
  Expect(ddprun_seconds_until_stop(worker, &left) == DDPRUN_OK && left < 0, "seconds_until_stop");
  Expect(ddprun_report_progress(worker, 7, 128) == DDPRUN_OK, "report_progress");
}

static void Errors(ddprun_worker* worker) {
  float value = 0;
  ExpectError(ddprun_all_reduce(worker, &value, 1, 99, DDPRUN_SUM), DDPRUN_INVALID_ARGUMENT,
              "dtype=99: must be a ddprun_dtype, from 0 (DDPRUN_FLOAT32) to 7 (DDPRUN_INT64)");
  ExpectError(ddprun_all_reduce(worker, &value, 1, DDPRUN_FLOAT32, -1), DDPRUN_INVALID_ARGUMENT,
              "op=-1: must be a ddprun_op, from 0 (DDPRUN_SUM) to 4 (DDPRUN_PRODUCT)");
  ExpectError(ddprun_all_reduce(worker, &value, 1, DDPRUN_INT32, DDPRUN_AVERAGE), DDPRUN_INVALID_ARGUMENT,
              "op=1 (DDPRUN_AVERAGE): requires a floating-point dtype, not 6");
  ExpectError(ddprun_all_reduce(worker, NULL, 3, DDPRUN_FLOAT32, DDPRUN_SUM), DDPRUN_INVALID_ARGUMENT,
              "data is NULL, with count=3");
  ExpectError(ddprun_all_reduce(worker, &value, -1, DDPRUN_FLOAT32, DDPRUN_SUM), DDPRUN_INVALID_ARGUMENT,
              "count=-1: must be from 0 to the size of the memory");
  ExpectError(ddprun_all_reduce(NULL, &value, 1, DDPRUN_FLOAT32, DDPRUN_SUM), DDPRUN_INVALID_ARGUMENT,
              "worker is NULL");
  ExpectError(ddprun_broadcast(worker, &value, 1, DDPRUN_FLOAT32, 2), DDPRUN_INVALID_ARGUMENT,
              "root=2: must be from 0 to 1");
  ExpectError(ddprun_report_progress(worker, -1, -1), DDPRUN_INVALID_ARGUMENT, "step=-1: must not be negative");
  ExpectError(ddprun_create(NULL, 0, NULL), DDPRUN_INVALID_ARGUMENT, "worker is NULL");
  ddprun_worker* other = worker;
  ExpectError(ddprun_create("mpi", 0, &other), DDPRUN_INVALID_ARGUMENT, "backend \"mpi\": must be \"gloo\" or NULL");
  Expect(other == NULL && ddprun_rank(NULL) == -1, "values without a worker");
  Expect(ddprun_barrier(worker) == DDPRUN_OK, "the group is usable after invalid arguments");
}

enum { kSteps = 6 };

/* Trains kSteps steps elastically: each adds 1 + 2 to a sum. Rank 1 waits to be killed in step 3 of its first process,
 * after it has changed the state. */
static int Elastic(ddprun_worker* worker) {
  double sum = 0;
  int64_t step = 0;
  int rounds = 0, code = DDPRUN_OK;
  ExpectError(ddprun_barrier(worker), DDPRUN_FAILED_PRECONDITION,
              ddprun_rank(worker) == 0 ? "rank 0: this worker has no group: it was shut down, or no round has begun"
                                       : "rank 1: this worker has no group: it was shut down, or no round has begun");
  ExpectError(ddprun_add_state(worker, "sum", NULL, 8), DDPRUN_INVALID_ARGUMENT,
              "name and data must not be NULL, and bytes=8 must be positive");
  Expect(ddprun_add_state(worker, "sum", &sum, sizeof sum) == DDPRUN_OK, "add_state");
  do {
    code = ddprun_next_round(worker, &step);
    if (code == DDPRUN_OK) printf("round of rank %d from step %d with sum %g\n", ddprun_rank(worker), (int)step, sum);
    ++rounds;
    while (code == DDPRUN_OK && step < kSteps && !ddprun_round_ended(worker)) {
      double value = ddprun_rank(worker) + 1;
      if (step == 3 && rounds == 1 && getenv("DDPRUN_ROUND") && strcmp(getenv("DDPRUN_ROUND"), "1") == 0) {
        sum += 1000; /* the interrupted step, which the next round undoes */
        if (ddprun_rank(worker) == 1) {
          printf("pid %d waits\n", (int)getpid());
          for (;;) pause();
        }
      }
      code = ddprun_all_reduce(worker, &value, 1, DDPRUN_FLOAT64, DDPRUN_SUM);
      if (code != DDPRUN_OK) break;
      sum += value;
      code = ddprun_commit(worker, ++step);
    }
  } while (code == DDPRUN_OK ? step < kSteps : ddprun_recoverable(worker, code));
  if (code == DDPRUN_OK) code = ddprun_shutdown(worker);
  printf("rank %d has sum %g after %d rounds\n", ddprun_rank(worker), sum, rounds);
  return code;
}

int main(int argc, char** argv) {
  ddprun_worker* worker = NULL;
  const char* const does = argc > 1 ? argv[1] : "";
  const int elastic = strcmp(does, "elastic") == 0;
  int code = elastic ? ddprun_create_elastic(NULL, 60, &worker) : ddprun_create(NULL, 60, &worker);
  setvbuf(stdout, NULL, _IOLBF, 0);
  Expect(ddprun_api_version() >= DDPRUN_API_VERSION, "api_version");
  if (code == DDPRUN_OK) printf("rank %d of %d ready\n", ddprun_rank(worker), ddprun_world_size(worker));
  if (code == DDPRUN_OK && elastic) {
    code = Elastic(worker);
  } else if (code == DDPRUN_OK && strcmp(does, "loop") == 0) {
    float value = 0;
    while (code == DDPRUN_OK) code = ddprun_all_reduce(worker, &value, 1, DDPRUN_FLOAT32, DDPRUN_SUM);
  } else if (code == DDPRUN_OK) {
    Collectives(worker);
    Errors(worker);
    code = ddprun_shutdown(worker);
    ExpectError(ddprun_barrier(worker), DDPRUN_FAILED_PRECONDITION,
                ddprun_rank(worker) == 0 ? "rank 0: this worker has no group: it was shut down, or no round has begun"
                                         : "rank 1: this worker has no group: it was shut down, or no round has begun");
  }
  printf("code %d, %d failures\n", code, failures);
  if (code != DDPRUN_OK) ddprun_fail(worker, NULL);
  ddprun_destroy(worker);
  return code != DDPRUN_OK || failures != 0;
}
