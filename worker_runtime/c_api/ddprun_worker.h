#ifndef DDPRUN_WORKER_RUNTIME_C_API_DDPRUN_WORKER_H_
#define DDPRUN_WORKER_RUNTIME_C_API_DDPRUN_WORKER_H_

#include <stdint.h>

/*
 * The worker runtime for languages other than C++: C99, without types of LibTorch or Abseil. Link with
 * libddprun_c.so, or load it (Python's ctypes, Julia's ccall, Java's FFM, Fortran's ISO_C_BINDING, Rust's FFI).
 *
 *   #include <stdio.h>
 *   #include <ddprun_worker.h>
 *
 *   int main(void) {
 *     ddprun_worker* worker = NULL;
 *     float gradient[2] = {1, 2};
 *     int code = ddprun_create(NULL, 60, &worker);
 *     if (code == DDPRUN_OK) code = ddprun_all_reduce(worker, gradient, 2, DDPRUN_FLOAT32, DDPRUN_AVERAGE);
 *     if (code == DDPRUN_OK) ddprun_report_progress(worker, 1, 2);
 *     if (code == DDPRUN_OK) code = ddprun_shutdown(worker);
 *     if (code != DDPRUN_OK) ddprun_fail(worker, NULL);
 *     ddprun_destroy(worker);
 *     return code != DDPRUN_OK;
 *   }
 *
 *   ddprun --nproc-per-node=2 --no-python ./program
 *
 * Errors: functions that return int return DDPRUN_OK or a ddprun_code, unless stated otherwise; ddprun_last_error()
 * then has one line of text. An invalid argument leaves the group usable. After any other error of a collective the
 * group is unusable: call ddprun_fail or ddprun_destroy. No function throws a C++ exception or ends the process.
 *
 * Collectives: all ranks call the same functions in the same order, with equal counts, dtype and op. Ranks that pass
 * different counts are not always detected, and Gloo may then end the process. Each call blocks until this rank's
 * memory may be used again, at most for the timeout. Memory belongs to the caller, is not kept after the call, is on
 * the host, and is aligned for its dtype. A count is a number of elements, from 0; with 0 the memory may be NULL.
 *
 * Threads: use a worker from one thread at a time; it need not be the same thread. ddprun_last_error is per thread.
 *
 * Signals: the first worker of a process makes it ignore SIGPIPE unless a handler is set. See ddprun_seconds_until_stop
 * for SIGTERM.
 *
 * Not covered: memory of GPUs (copy it to the host first), asynchronous collectives, subgroups, checkpoints,
 * ddprun --preload, and fork() without exec after the first call.
 */

/* Increases when functions or values are added. Functions and values that exist keep their meaning. A program that was
 * compiled with a version runs with a library whose ddprun_api_version() is at least that. */
#define DDPRUN_API_VERSION 1

#if defined(__GNUC__)
#define DDPRUN_EXPORT __attribute__((visibility("default")))
#else
#define DDPRUN_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The values of absl::StatusCode. */
enum ddprun_code {
  DDPRUN_OK = 0,
  DDPRUN_CANCELLED = 1,
  DDPRUN_UNKNOWN = 2,
  DDPRUN_INVALID_ARGUMENT = 3,  /* an argument or environment variable; the text names it */
  DDPRUN_DEADLINE_EXCEEDED = 4, /* the timeout expired; the text names the ranks that did not enter the collective */
  DDPRUN_NOT_FOUND = 5,
  DDPRUN_ALREADY_EXISTS = 6,
  DDPRUN_PERMISSION_DENIED = 7,
  DDPRUN_RESOURCE_EXHAUSTED = 8,  /* out of memory */
  DDPRUN_FAILED_PRECONDITION = 9, /* a call in the wrong order, such as a collective after ddprun_shutdown */
  DDPRUN_ABORTED = 10,
  DDPRUN_OUT_OF_RANGE = 11,
  DDPRUN_UNIMPLEMENTED = 12,
  DDPRUN_INTERNAL = 13,
  DDPRUN_UNAVAILABLE = 14, /* a rank died; the text names it and its host */
  DDPRUN_DATA_LOSS = 15
};

enum ddprun_dtype {
  DDPRUN_FLOAT32 = 0,
  DDPRUN_FLOAT64 = 1,
  DDPRUN_FLOAT16 = 2,  /* IEEE binary16 */
  DDPRUN_BFLOAT16 = 3, /* the upper half of a float32 */
  DDPRUN_INT8 = 4,
  DDPRUN_UINT8 = 5,
  DDPRUN_INT32 = 6,
  DDPRUN_INT64 = 7
};

enum ddprun_op {
  DDPRUN_SUM = 0,
  DDPRUN_AVERAGE = 1, /* floating-point dtypes only */
  DDPRUN_MIN = 2,
  DDPRUN_MAX = 3,
  DDPRUN_PRODUCT = 4
};

/* This process as a rank of a group. Created by ddprun_create and freed by ddprun_destroy. */
typedef struct ddprun_worker ddprun_worker;

/* DDPRUN_API_VERSION of the library. */
DDPRUN_EXPORT int ddprun_api_version(void);

/* Text of the last error of a call in this thread; "" before the first. Valid until the thread's next error. */
DDPRUN_EXPORT const char* ddprun_last_error(void);

/* Creates the group of all workers, from the environment variables that the launcher (ddprun, torchrun) sets. Without
 * them: a group of one rank. Blocks until all ranks have joined. `backend`: "gloo", or NULL for the default.
 * `timeout_seconds`: for this call and for each collective; 0: 30 minutes. *worker is NULL after an error.
 * Errors: INVALID_ARGUMENT: an argument or variable; DEADLINE_EXCEEDED: names the ranks that did not join; UNAVAILABLE:
 * the store is lost. */
DDPRUN_EXPORT int ddprun_create(const char* backend, double timeout_seconds, ddprun_worker** worker);

/* Creates the group inside an MPI program, or of another system that has assigned the ranks: no launcher is needed. All
 * ranks call it. `broadcast` is called once: it sends the `bytes` bytes at `text` of rank 0 to all ranks, and returns 0
 * for success. With MPI:
 *
 *   int Broadcast(void* comm, char* text, int32_t bytes) {
 *     return MPI_Bcast(text, bytes, MPI_CHAR, 0, *(MPI_Comm*)comm);
 *   }
 *
 * `context` is its first argument. The local rank is the index on this host, of `local_world_size` ranks. Rank 0 hosts
 * a store until its process ends, under the host name of uname; with all ranks on one host, on the loopback interface.
 * Errors: those of ddprun_create; UNKNOWN: `broadcast` has failed. */
DDPRUN_EXPORT int ddprun_create_from_ranks(int rank, int world_size, int local_rank, int local_world_size,
                                           int (*broadcast)(void* context, char* text, int32_t bytes), void* context,
                                           double timeout_seconds, ddprun_worker** worker);

/* Frees the worker; without an earlier ddprun_shutdown the group is aborted first, and the other ranks' collectives
 * fail. NULL: does nothing. */
DDPRUN_EXPORT void ddprun_destroy(ddprun_worker* worker);

/* Collective: waits until all ranks have called it, and closes the connections. Only ddprun_destroy, ddprun_fail,
 * ddprun_report_progress and the rank functions may follow. */
DDPRUN_EXPORT int ddprun_shutdown(ddprun_worker* worker);

/* For a program that ends because of an error: prints "rank N: TEXT", writes it to the launcher's error file, so that
 * the failure summary of every node shows it, and aborts the group, so that the other ranks do not wait for this one.
 * `text` NULL: ddprun_last_error(). `worker` NULL (ddprun_create has failed): rank and file are those of the
 * environment. End the process with an exit code other than 0 afterwards. */
DDPRUN_EXPORT void ddprun_fail(ddprun_worker* worker, const char* text);

/* Values of this worker; -1 if `worker` is NULL. The local rank is the index on this host. */
DDPRUN_EXPORT int ddprun_rank(const ddprun_worker* worker);
DDPRUN_EXPORT int ddprun_world_size(const ddprun_worker* worker);
DDPRUN_EXPORT int ddprun_local_rank(const ddprun_worker* worker);
DDPRUN_EXPORT int ddprun_local_world_size(const ddprun_worker* worker);

/* Waits until all ranks have entered. */
DDPRUN_EXPORT int ddprun_barrier(ddprun_worker* worker);

/* In place: `data` of all ranks becomes the sum (or `op`) over the ranks. */
DDPRUN_EXPORT int ddprun_all_reduce(ddprun_worker* worker, void* data, int64_t count, int dtype, int op);

/* Like ddprun_all_reduce for each of `arrays` arrays, data[i] with counts[i] elements, in one exchange: for the
 * gradients of a model. Needs a copy of all arrays. */
DDPRUN_EXPORT int ddprun_all_reduce_arrays(ddprun_worker* worker, void* const* data, const int64_t* counts,
                                           int32_t arrays, int dtype, int op);

/* `data` of all ranks becomes that of `root`. */
DDPRUN_EXPORT int ddprun_broadcast(ddprun_worker* worker, void* data, int64_t count, int dtype, int root);

/* `output`, of world size * count elements, receives the `count` elements of each rank, in rank order. Input and output
 * must not overlap. */
DDPRUN_EXPORT int ddprun_all_gather(ddprun_worker* worker, const void* input, void* output, int64_t count, int dtype);

/* Rank r's `output`, of `count` elements, receives part r of the sum (or `op`) of the ranks' inputs, each of world size
 * * count elements. Input and output must not overlap. */
DDPRUN_EXPORT int ddprun_reduce_scatter(ddprun_worker* worker, const void* input, void* output, int64_t count,
                                        int dtype, int op);

/* Reports the position to the launcher, whose failure summary and `ddprunctl` show it. `samples`: trained on by this
 * rank; negative: not known. Does not communicate with other ranks or block; does nothing without a launcher.
 * Errors: INVALID_ARGUMENT: `step` is negative. */
DDPRUN_EXPORT int ddprun_report_progress(ddprun_worker* worker, int64_t step, int64_t samples);

/* Collective: *seconds becomes the time until this job is killed (SLURM's time limit, a preemption, SIGTERM to the
 * launcher), the same on all ranks up to the time of the call's exchange; negative: no stop was requested. Call it once
 * before the first step, then every few steps: from the first call on, SIGTERM does not end the process, unless it has
 * a handler. */
DDPRUN_EXPORT int ddprun_seconds_until_stop(ddprun_worker* worker, double* seconds);

/*
 * Elastic workers keep their process when others die, and when nodes join or leave. The program registers the memory
 * that makes up its state; each round begins with the state of the rank that has committed the most steps.
 *
 *   ddprun_create_elastic(NULL, 60, &worker);
 *   ddprun_add_state(worker, "weights", weights, sizeof weights);
 *   do {
 *     code = ddprun_next_round(worker, &step);
 *     while (code == DDPRUN_OK && step < steps && !ddprun_round_ended(worker)) {
 *       ...                                                        // gradients of step `step` from `weights`
 *       code = ddprun_all_reduce(worker, gradients, n, DDPRUN_FLOAT32, DDPRUN_AVERAGE);
 *       if (code != DDPRUN_OK) break;
 *       ...                                                        // changes `weights`; no collective here
 *       code = ddprun_commit(worker, ++step);
 *     }
 *   } while (code == DDPRUN_OK ? step < steps : ddprun_recoverable(worker, code));
 *   if (code == DDPRUN_OK) code = ddprun_shutdown(worker);
 *
 * Needs ddprun with --max-restarts of at least 1. Under another launcher there is one round, and no error is
 * recoverable. Not covered: checkpoints (the program reads and writes its own), and state whose size changes.
 */

/* Like ddprun_create, without forming a group. Once per process, and before its other functions. SIGUSR1 and SIGUSR2
 * are ignored unless they have a handler. Rank and world size may change with every ddprun_next_round. */
DDPRUN_EXPORT int ddprun_create_elastic(const char* backend, double timeout_seconds, ddprun_worker** worker);

/* Adds memory to the state, before the first ddprun_next_round. `name` is new; all ranks add the same names and sizes.
 * The memory must stay valid until ddprun_destroy. A commit copies it, so that an interrupted step can be undone. */
DDPRUN_EXPORT int ddprun_add_state(ddprun_worker* worker, const char* name, void* data, int64_t bytes);

/* Collective: leaves the current round, if any, undoes what has changed since the last commit, waits for the next
 * round, without a time limit, forms its group and sends the state. *step becomes the number of committed steps that
 * the state contains, the same on all ranks: 0, with the memory of rank 0, if no rank has committed one.
 * Errors: UNAVAILABLE: the launcher ended; CANCELLED: it stops this worker; DATA_LOSS: the state is lost;
 * FAILED_PRECONDITION: not an elastic worker; those of ddprun_create. */
DDPRUN_EXPORT int ddprun_next_round(ddprun_worker* worker, int64_t* step);

/* Marks the state as containing `step` complete steps. Not collective. */
DDPRUN_EXPORT int ddprun_commit(ddprun_worker* worker, int64_t step);

/* 1 if the launcher has ended the round: call ddprun_next_round. Else 0. Check it after each step. */
DDPRUN_EXPORT int ddprun_round_ended(const ddprun_worker* worker);

/* 1 if `code`, of this thread's last call and not 0, is an error of the group rather than of this rank, and the
 * launcher can start another round: call ddprun_next_round. Else 0: call ddprun_fail. */
DDPRUN_EXPORT int ddprun_recoverable(ddprun_worker* worker, int code);

#ifdef __cplusplus
}
#endif

#endif /* DDPRUN_WORKER_RUNTIME_C_API_DDPRUN_WORKER_H_ */
