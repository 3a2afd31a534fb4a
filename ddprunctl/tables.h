#ifndef DDPRUN_DDPRUNCTL_TABLES_H_
#define DDPRUN_DDPRUNCTL_TABLES_H_

#include <string>
#include <utility>
#include <vector>

#include "proto/control.pb.h"
#include "proto/rendezvous.pb.h"

// PURE: human-readable output. Foreign texts are shown without control characters.
namespace ddprun::ctl {

// A job id and one of the job's nodes.
using JobNode = std::pair<std::string, v1::Node>;

// Formats a table. Columns are as wide as their widest cell, two spaces apart; the last one is not padded.
std::string Table(const std::vector<std::vector<std::string>>& rows);

std::string JobsTable(const std::vector<v1::Job>& jobs);
std::string NodesTable(const std::vector<JobNode>& nodes);
std::string HostsTable(const v1::ListHostsResponse& hosts);
// Describes one job and its nodes, in several lines.
std::string DescribeJob(const v1::Job& job);
// Describes each rank in a line, with its stacks below; ranks with the same Python stacks share one block.
std::string StacksText(const v1::InspectResponse& stacks);
// Describes what each rank uses, in one row.
std::string UsageTable(const v1::InspectResponse& usage);
// Returns one line: "12  2026-11-23T06:15:25Z  round.assigned  job1  round 3  all 2 nodes joined".
std::string EventLine(const v1::Event& event);

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_TABLES_H_
