#ifndef DDPRUN_RENDEZVOUS_SERVER_JOB_QUERIES_H_
#define DDPRUN_RENDEZVOUS_SERVER_JOB_QUERIES_H_

#include "absl/status/status.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/server/driver.h"

// Rendezvous.ListJobs and GetJob without gRPC. proto/rendezvous.proto documents the status codes. Thread-safe.
namespace ddprun::rendezvous {

inline constexpr int kMaxJobsPerPage = 1000;
inline constexpr int kDefaultJobsPerPage = 100;

absl::Status ListJobs(const Driver& driver, const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
absl::Status GetJob(const Driver& driver, const v1::GetJobRequest& request, v1::Job* response);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_JOB_QUERIES_H_
