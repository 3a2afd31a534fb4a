/*
 * A trainer inside an MPI program, such as a simulation that trains a network: MPI starts the processes and assigns the
 * ranks, ddprun reduces the gradients. Measures the step with an MPI_Allreduce per parameter, and with one call of
 * ddprun for all parameters.
 *
 *   mpicc -O2 -I $PREFIX/include mpi_trainer.c -o mpi_trainer -L $PREFIX/lib -lddprun_c -Wl,-rpath,$PREFIX/lib
 *   mpirun -n 2 ./mpi_trainer [LAYERS [WIDTH [STEPS]]]
 */
#include <ddprun_worker.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* A layer has a weight of width * width and a bias of width. */
typedef struct {
  int arrays;
  int64_t* counts;
  void** parameters;
  void** gradients;
} Network;

static int BroadcastOverMpi(void* comm, char* text, int32_t bytes) {
  return MPI_Bcast(text, bytes, MPI_CHAR, 0, *(MPI_Comm*)comm);
}

static Network MakeNetwork(int layers, int width) {
  Network network = {2 * layers, NULL, NULL, NULL};
  network.counts = malloc(network.arrays * sizeof *network.counts);
  network.parameters = malloc(network.arrays * sizeof *network.parameters);
  network.gradients = malloc(network.arrays * sizeof *network.gradients);
  for (int i = 0; i < network.arrays; ++i) {
    network.counts[i] = i % 2 == 0 ? (int64_t)width * width : width;
    network.parameters[i] = calloc(network.counts[i], sizeof(float));
    network.gradients[i] = calloc(network.counts[i], sizeof(float));
  }
  return network;
}

/* Gradients of (parameter - target)^2 / 2, where each rank has its own target: the mean over the ranks is learned. */
static void Backward(const Network* network, int rank) {
  for (int i = 0; i < network->arrays; ++i) {
    const float* parameter = network->parameters[i];
    float* gradient = network->gradients[i];
    for (int64_t k = 0; k < network->counts[i]; ++k) gradient[k] = parameter[k] - (float)(rank + 1);
  }
}

static void Update(const Network* network) {
  for (int i = 0; i < network->arrays; ++i) {
    float* parameter = network->parameters[i];
    const float* gradient = network->gradients[i];
    for (int64_t k = 0; k < network->counts[i]; ++k) parameter[k] -= 0.5f * gradient[k];
  }
}

static void AverageByHand(const Network* network, int size) {
  for (int i = 0; i < network->arrays; ++i) {
    float* gradient = network->gradients[i];
    MPI_Allreduce(MPI_IN_PLACE, gradient, (int)network->counts[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int64_t k = 0; k < network->counts[i]; ++k) gradient[k] /= (float)size;
  }
}

/* Trains from zero, and returns the seconds of a step; negative after an error. `worker` NULL: with MPI. */
static double Train(const Network* network, int steps, int rank, int size, ddprun_worker* worker) {
  for (int i = 0; i < network->arrays; ++i) {
    for (int64_t k = 0; k < network->counts[i]; ++k) ((float*)network->parameters[i])[k] = 0;
  }
  double begin = 0;
  for (int step = -3; step < steps; ++step) { /* three more at the start, which are not measured */
    if (step == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      begin = MPI_Wtime();
    }
    Backward(network, rank);
    if (worker == NULL) {
      AverageByHand(network, size);
    } else if (ddprun_all_reduce_arrays(worker, network->gradients, network->counts, network->arrays, DDPRUN_FLOAT32,
                                        DDPRUN_AVERAGE) != DDPRUN_OK) {
      return -1;
    }
    Update(network);
  }
  return (MPI_Wtime() - begin) / steps;
}

/* 1 if every parameter has learned the mean of the targets. */
static int Learned(const Network* network, int size) {
  for (int i = 0; i < network->arrays; ++i) {
    for (int64_t k = 0; k < network->counts[i]; ++k) {
      if (fabsf(((float*)network->parameters[i])[k] - 0.5f * (float)(size + 1)) > 1e-3f) return 0;
    }
  }
  return 1;
}

int main(int argc, char** argv) {
  const int layers = argc > 1 ? atoi(argv[1]) : 50, width = argc > 2 ? atoi(argv[2]) : 64;
  const int steps = argc > 3 ? atoi(argv[3]) : 100;
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  MPI_Comm comm, host;
  MPI_Init(&argc, &argv);
  comm = MPI_COMM_WORLD;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &local_rank);
  MPI_Comm_size(host, &local_size);

  ddprun_worker* worker = NULL;
  int code = ddprun_create_from_ranks(rank, size, local_rank, local_size, BroadcastOverMpi, &comm, 60, &worker);
  if (code == DDPRUN_OK) {
    const Network network = MakeNetwork(layers, width);
    const double by_hand = Train(&network, steps, rank, size, NULL);
    const int learned_by_hand = Learned(&network, size);
    const double with_ddprun = Train(&network, steps, rank, size, worker);
    const int learned = learned_by_hand && Learned(&network, size);
    if (rank == 0 && with_ddprun > 0) {
      printf("%d ranks, %d parameters of %d and %d elements: step %.3f ms by hand, %.3f ms with ddprun; %s\n", size,
             network.arrays, width * width, width, 1e3 * by_hand, 1e3 * with_ddprun,
             learned ? "learned" : "NOT LEARNED");
    }
    code = with_ddprun < 0 || !learned;
  }
  if (code == DDPRUN_OK) code = ddprun_shutdown(worker);
  if (code != DDPRUN_OK) ddprun_fail(worker, NULL);
  ddprun_destroy(worker);
  if (code != DDPRUN_OK) MPI_Abort(comm, 1);
  MPI_Finalize();
  return 0;
}
