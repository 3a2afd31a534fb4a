#include "rendezvous/server/job_queries.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/steady_time.h"

namespace ddprun::rendezvous {
namespace {

// A page token is the id of the last job shown, with a prefix that other texts lack.
constexpr absl::string_view kTokenPrefix = "after:";

std::string PageToken(absl::string_view last_job_id) {
  return absl::WebSafeBase64Escape(absl::StrCat(kTokenPrefix, last_job_id));
}

std::optional<std::string> LastJobOfToken(const std::string& token) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text) || !absl::StartsWith(text, kTokenPrefix)) return std::nullopt;
  return text.substr(kTokenPrefix.size());
}

}  // namespace

absl::Status ListJobs(const Driver& driver, const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
  if (request.page_size() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("page_size: must not be negative, is ", request.page_size()));
  }
  std::string after;
  if (!request.page_token().empty()) {
    const std::optional<std::string> last = LastJobOfToken(request.page_token());
    if (!last.has_value()) return absl::InvalidArgumentError("page_token: invalid");
    after = *last;
  }
  const size_t size = request.page_size() == 0 ? kDefaultJobsPerPage : std::min(request.page_size(), kMaxJobsPerPage);
  // Ask for one more job to find out whether there is another page.
  std::vector<v1::Job> jobs = driver.ListJobs(after, size + 1);
  const bool more = jobs.size() > size;
  if (more) jobs.resize(size);
  if (more) response->set_next_page_token(PageToken(jobs.back().job_id()));
  for (v1::Job& job : jobs) *response->add_jobs() = std::move(job);
  return absl::OkStatus();
}

absl::Status GetJob(const Driver& driver, const v1::GetJobRequest& request, v1::Job* response) {
  if (request.job_id().empty()) return absl::InvalidArgumentError("job_id: must not be empty");
  std::optional<v1::Job> job = driver.GetJob(request.job_id());
  if (!job.has_value()) return absl::NotFoundError(absl::StrCat("job ", request.job_id(), " not found"));
  *response = *std::move(job);
  return absl::OkStatus();
}

}  // namespace ddprun::rendezvous
