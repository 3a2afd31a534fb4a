#include "rendezvous/http/server_sent_events.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/wire/message_json.h"

namespace ddprun::http {
namespace {

using rendezvous::EventLog;

constexpr size_t kPartBytes = 64 * 1024;
constexpr size_t kEventsAtOnce = 256;

}  // namespace

EventStream::EventStream(const EventLog* log, const std::string& server, Options options)
    : log_(log), server_(server), options_(std::move(options)) {
  absl::string_view number = options_.last_id;
  if (absl::ConsumePrefix(&number, absl::StrCat(server_, "-")) && absl::SimpleAtoi(number, &after_) &&
      after_ <= log_->newest()) {
    return;
  }
  if (!options_.last_id.empty()) head_ = "event: reset\ndata: {}\n\n";
  after_ = BacklogStart();
}

bool EventStream::Matches(const rendezvous::Event& event) const {
  return options_.job_id.empty() || event.job_id() == options_.job_id;
}

uint64_t EventStream::BacklogStart() const {
  const EventLog::Events all = log_->Read(0, EventLog::kCapacity);
  size_t wanted = options_.backlog;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (wanted == 0) return (*it)->number();
    if (Matches(**it)) --wanted;
  }
  return all.empty() ? log_->newest() : all.front()->number() - 1;
}

std::string EventStream::Next() {
  std::string part = std::exchange(head_, "");
  while (part.size() < kPartBytes) {
    // Read() would start over for a number above the newest.
    if (after_ >= log_->newest()) break;
    const EventLog::Events events = log_->Read(after_, kEventsAtOnce);
    if (events.empty()) break;
    if (events.front()->number() > after_ + 1) {
      absl::StrAppend(&part, "event: gap\ndata: {\"missing\":", events.front()->number() - after_ - 1, "}\n\n");
    }
    for (const auto& event : events) {
      after_ = event->number();
      if (!Matches(*event)) continue;
      absl::StrAppend(&part, "id: ", server_, "-", after_, "\ndata: ", rendezvous::JsonText(rendezvous::ToJson(*event)),
                      "\n\n");
      if (part.size() >= kPartBytes) break;
    }
  }
  return part;
}

}  // namespace ddprun::http
