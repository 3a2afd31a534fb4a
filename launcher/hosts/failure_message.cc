#include "launcher/hosts/failure_message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::JobFailure;

FailureReport FromMessage(const JobFailure& message, absl::TimeZone time_zone) {
  FailureReport report;
  report.entrypoint = message.entrypoint();
  report.verdict = message.verdict();
  report.others.assign(message.others().begin(), message.others().end());
  report.time_zone = time_zone;
  report.interpreter = message.interpreter();
  report.hint = message.hint();
  return report;
}

}  // namespace

JobFailure ToMessage(const FailureReport& report) {
  JobFailure message;
  message.set_entrypoint(report.entrypoint);
  *message.mutable_verdict() = report.verdict;
  message.mutable_others()->Assign(report.others.begin(), report.others.end());
  message.set_interpreter(report.interpreter);
  message.set_hint(report.hint);
  return message;
}

std::string JobSummary(const std::vector<HostFailure>& hosts, absl::TimeZone time_zone) {
  struct Group {
    std::vector<std::string> names;
    JobFailure failure;
  };
  std::vector<Group> groups;
  for (const auto& [name, host, failure] : hosts) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.failure.verdict() == failure.verdict(); });
    if (group == groups.end()) {
      groups.push_back({{name}, failure});
      continue;
    }
    group->names.push_back(name);
    group->failure.mutable_others()->MergeFrom(failure.others());
    // The advice of the host that failed is the best.
    const bool failed_here = host == failure.verdict().first_cause().host();
    if (failed_here) group->failure.set_interpreter(failure.interpreter());
    if (failed_here || group->failure.hint().empty()) group->failure.set_hint(failure.hint());
  }
  std::string out;
  for (const Group& group : groups) {
    if (groups.size() > 1) absl::StrAppend(&out, absl::StrJoin(group.names, ", "), ":\n");
    absl::StrAppend(&out, FailureSummary(FromMessage(group.failure, time_zone)));
  }
  return out;
}

}  // namespace ddprun::launcher
