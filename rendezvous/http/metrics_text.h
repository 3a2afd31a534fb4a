#ifndef DDPRUN_RENDEZVOUS_HTTP_METRICS_TEXT_H_
#define DDPRUN_RENDEZVOUS_HTTP_METRICS_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/http/server_view.h"

namespace ddprun::http {

// Maximum number of live jobs that get series of their own, in the order of their ids: series cost memory in
// Prometheus.
inline constexpr size_t kMaxJobsWithSeries = 200;

// PURE: all metrics in Prometheus' text format (version 0.0.4). Names follow its conventions: base units, "_total" for
// counters. A job's training metrics (step, loss) are omitted if no worker reported any.
std::string MetricsText(const ServerView& server, const EventCounts& counts, const ProcessNumbers& process,
                        const std::vector<v1::Job>& jobs);

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_METRICS_TEXT_H_
