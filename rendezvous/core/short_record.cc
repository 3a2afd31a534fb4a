#include "rendezvous/core/short_record.h"

#include <optional>

#include "base/text.h"
#include "rendezvous/core/failure_text.h"
#include "rendezvous/core/job_history.h"

namespace ddprun::rendezvous {
namespace {

void ShortenTexts(std::optional<Verdict>* verdict) {
  if (!verdict->has_value()) return;
  (*verdict)->set_reason(OneLine((*verdict)->reason(), JobHistory::kMaxText));
  if ((*verdict)->has_first_cause()) rendezvous::ShortenTexts(JobHistory::kMaxText, (*verdict)->mutable_first_cause());
}

}  // namespace

JobRecord Shortened(JobRecord record) {
  record.events.clear();
  if (record.round.leave_cause) ShortenTexts(JobHistory::kMaxText, &*record.round.leave_cause);
  ShortenTexts(&record.verdict);
  ShortenTexts(&record.earlier_verdict);
  if (record.verdict) {
    record.round.nodes.clear();
    record.fenced.clear();
  }
  return record;
}

}  // namespace ddprun::rendezvous
