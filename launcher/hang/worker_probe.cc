#include "launcher/hang/worker_probe.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/hang/rank_state.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxReadAtOnce = 64 << 10;
constexpr int kMaxJsonDepth = 6;  // an entry's sizes of a tensor: object, entries, entry, sizes, size
constexpr size_t kMostEntries = 20'000;
constexpr size_t kMostGroups = 256;
constexpr size_t kMostTensors = 16;
constexpr size_t kMaxName = 200;
constexpr int kMostThreads = 100;
constexpr int kMostFrames = 100;

}  // namespace

WorkerProbe::WorkerProbe(EventLoop* loop, pid_t process, UniqueFd fd, std::function<void()> on_closed)
    : loop_(loop), process_(process), fd_(std::move(fd)), on_closed_(std::move(on_closed)) {
  if (!loop_->AddFd(fd_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); }).ok()) {
    // Close may call on_closed, which must not happen in the constructor.
    loop_->Post([this, alive = alive_] {
      if (*alive) Close();
    });
  }
  timer_ = loop_->AddTimer(
      [this] {
        SteadyTime next = SteadyTime::InfiniteFuture();
        for (const Asked& asked : asked_) {
          if (asked.on_answer) next = std::min(next, asked.deadline);
        }
        return next;
      },
      [this](SteadyTime now) { OnDeadline(now); });
}

WorkerProbe::~WorkerProbe() {
  *alive_ = false;
  if (fd_.valid()) loop_->RemoveFd(fd_.get());
}

void WorkerProbe::Ask(Question question, OnAnswer on_answer) {
  if (!fd_.valid()) {
    loop_->Post([alive = alive_, on_answer = std::move(on_answer)] {
      if (*alive) on_answer(std::nullopt);
    });
    return;
  }
  asked_.push_back({question, std::move(on_answer), SteadyNow() + Patience(question)});
  SendNext();
}

void WorkerProbe::SendNext() {
  if (sent_ || asked_.empty() || !fd_.valid()) return;
  const char byte = static_cast<char>(asked_.front().question);
  sent_ = send(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
  // If the process has ended the descriptor becomes readable, and OnReadable closes it.
}

void WorkerProbe::OnReadable() {
  char bytes[kMaxReadAtOnce];
  const ssize_t got = recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || !Receive(absl::string_view(bytes, got))) return Close();
}

bool WorkerProbe::Receive(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (!sent_) return false;
    const size_t wanted_of_length = kLengthBytes - std::min(kLengthBytes, received_.size());
    const absl::string_view length = bytes.substr(0, wanted_of_length);
    received_.append(length.data(), length.size());
    bytes.remove_prefix(length.size());
    if (received_.size() < kLengthBytes) return true;
    size_t size = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) size |= static_cast<size_t>(static_cast<uint8_t>(received_[i])) << 8 * i;
    if (size > kMaxAnswer) return false;
    const absl::string_view part = bytes.substr(0, kLengthBytes + size - received_.size());
    received_.append(part.data(), part.size());
    bytes.remove_prefix(part.size());
    if (received_.size() < kLengthBytes + size) return true;
    OnAnswer on_answer = std::move(asked_.front().on_answer);
    asked_.pop_front();
    sent_ = false;
    std::string answer = std::exchange(received_, "").substr(kLengthBytes);
    SendNext();
    if (!on_answer) continue;
    loop_->Post([alive = alive_, on_answer = std::move(on_answer), answer = std::move(answer)]() mutable {
      if (*alive) on_answer(std::move(answer));
    });
  }
  return true;
}

void WorkerProbe::OnDeadline(SteadyTime now) {
  std::vector<OnAnswer> late;
  for (auto asked = asked_.begin(); asked != asked_.end();) {
    if (!asked->on_answer || asked->deadline > now) {
      ++asked;
      continue;
    }
    late.push_back(std::exchange(asked->on_answer, nullptr));
    // The answer to a question that was sent may still arrive.
    asked = sent_ && asked == asked_.begin() ? asked + 1 : asked_.erase(asked);
  }
  const std::shared_ptr<bool> alive = alive_;
  for (const OnAnswer& on_answer : late) {
    if (*alive) on_answer(std::nullopt);
  }
}

void WorkerProbe::Close() {
  loop_->RemoveFd(fd_.get());
  fd_.reset();
  // Copies, because each callback may destroy this object.
  loop_->Post([alive = alive_, unanswered = std::exchange(asked_, {}), on_closed = on_closed_] {
    for (const Asked& asked : unanswered) {
      if (*alive && asked.on_answer) asked.on_answer(std::nullopt);
    }
    if (*alive) on_closed();
  });
}

// ---- flight recorders ----

namespace {

// Member `name` of an object; null if there is none.
const Json* Find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// An integer, which the recorders write as a number or as a text.
int64_t Integer(const Json* value, int64_t otherwise) {
  int64_t number = otherwise;
  if (value == nullptr) return otherwise;
  if (value->is_number_integer()) return value->get<int64_t>();
  if (const auto* text = value->get_ptr<const std::string*>()) {
    return absl::SimpleAtoi(*text, &number) ? number : otherwise;
  }
  return otherwise;
}

std::string Text(const Json* value) {
  const std::string* const text = value == nullptr ? nullptr : value->get_ptr<const std::string*>();
  return text == nullptr ? "" : OneLine(*text, kMaxName);
}

bool IsTrue(const Json* value) { return value != nullptr && value->is_boolean() && value->get<bool>(); }

// The recorders of an answer, Gloo's first. Values that lie deeper than those of a recorder are left out, so that a
// hostile answer does not take many times its size.
std::vector<Json> ParseRecorders(absl::string_view answer) {
  std::vector<Json> recorders;
  const auto keeps = [](int depth, Json::parse_event_t, const Json&) { return depth < kMaxJsonDepth; };
  for (const absl::string_view line : absl::StrSplit(answer, absl::MaxSplits('\n', 8), absl::SkipEmpty())) {
    Json recorder = Json::parse(line.begin(), line.end(), keeps, /*allow_exceptions=*/false);
    if (recorder.is_object()) recorders.push_back(std::move(recorder));
  }
  return recorders;
}

// The types and sizes of an entry's input: "Float[10, 4]".
void ReadTensors(const Json& entry, hang::v1::Collective* collective) {
  const Json* const types = Find(entry, "input_dtypes");
  const Json* const sizes = Find(entry, "input_sizes");
  if (types == nullptr || sizes == nullptr || !types->is_array() || !sizes->is_array()) return;
  for (size_t i = 0; i < std::min({types->size(), sizes->size(), kMostTensors}); ++i) {
    std::vector<std::string> numbers;
    if (const Json& size = (*sizes)[i]; size.is_array()) {
      for (const Json& number : size) numbers.push_back(absl::StrCat(Integer(&number, 0)));
    }
    collective->add_tensors(
        OneLine(absl::StrCat(Text(&(*types)[i]), "[", absl::StrJoin(numbers, ", "), "]"), kMaxName));
  }
}

// Name of an entry's group; empty if the entry is malformed.
std::string GroupName(const Json& entry) {
  const Json* const group = Find(entry, "process_group");
  if (group == nullptr || !group->is_array() || group->size() != 2) return "";
  return Text(&(*group)[1]) == kDefaultGroup ? kDefaultGroup : Text(&(*group)[0]);
}

// Adds the members of a group, from the text "[0, 4]" of the recorder's configuration; Gloo has none. The members of
// the default group are all ranks.
void ReadMembers(const Json& recorder, const Json& entry, hang::v1::Group* group) {
  const Json* const all = Find(recorder, "pg_config");
  const Json* const own = all == nullptr ? nullptr : Find(*all, Text(&(*Find(entry, "process_group"))[0]).c_str());
  const std::string text = own == nullptr ? "" : Text(Find(*own, "ranks"));
  absl::string_view ranks = text;
  if (!absl::ConsumePrefix(&ranks, "[") || !absl::ConsumeSuffix(&ranks, "]")) return;
  for (const absl::string_view part : absl::StrSplit(ranks, ',', absl::SkipWhitespace())) {
    int32_t rank = 0;
    if (!absl::SimpleAtoi(part, &rank)) return group->clear_members();
    group->add_members(rank);
  }
}

// Entries of one group by number. Several of one number are a coalesced operation: only the last of them ever
// completes.
struct GroupEntries {
  using ByNumber = std::map<int64_t, std::vector<const Json*>>;

  ByNumber collectives;
  ByNumber messages;                           // sends and receives
  std::vector<const Json*>* newest = nullptr;  // one of these lists

  const Json& any() const { return *(messages.empty() ? collectives : messages).begin()->second.front(); }
};

// The recorder that writes entries for backends that have none of their own. It counts all operations, from 0.
bool IsHooks(const Json& entry) { return absl::StartsWith(Text(Find(entry, "profiling_name")), "nccl2:"); }

// Gloo's entries remain "scheduled"; that they are retired is all that is known.
bool IsOpen(const Json& entry) { return !IsTrue(Find(entry, "retired")) && Text(Find(entry, "state")) != "completed"; }

hang::v1::Collective ReadOperation(const Json& entry, int64_t number, absl::Time now) {
  hang::v1::Collective operation;
  operation.set_number(number);
  const std::string label = Text(Find(entry, "profiling_name"));  // "gloo:all_reduce"
  const size_t colon = label.find(':');
  operation.set_name(colon == label.npos || colon + 1 == label.size() ? label : label.substr(colon + 1));
  ReadTensors(entry, &operation);
  const int64_t created = Integer(Find(entry, "time_created_ns"), absl::ToUnixNanos(now));
  operation.set_entered_us(created / 1000);
  operation.set_ended_us(Integer(Find(entry, "time_discovered_completed_ns"), 0) / 1000);
  operation.set_age_ms(std::max<int64_t>(0, absl::ToInt64Milliseconds(now - absl::FromUnixNanos(created))));
  operation.set_timeout_ms(std::max<int64_t>(0, Integer(Find(entry, "timeout_ms"), 0)));
  if (absl::StartsWith(label, "nccl")) operation.set_order(std::max<int64_t>(0, created));
  return operation;
}

// Adds the groups of one recorder to `groups`.
void ReadRecorder(const Json& recorder, const std::vector<const Json*>& later, absl::Time now,
                  std::vector<hang::v1::Group>* groups) {
  const Json* const entries = Find(recorder, "entries");
  if (entries == nullptr || !entries->is_array()) return;
  std::map<std::string, int64_t> newest_id;
  for (const Json& entry : *entries) {
    int64_t& id = newest_id.try_emplace(GroupName(entry), -1).first->second;
    id = std::max(id, Integer(Find(entry, "pg_id"), -1));
  }
  std::map<std::string, GroupEntries> found;
  for (auto entry = entries->end() - std::min(entries->size(), kMostEntries); entry != entries->end(); ++entry) {
    const std::string name = GroupName(*entry);
    const bool message = IsTrue(Find(*entry, "is_p2p"));
    const int64_t number = Integer(Find(*entry, message ? "p2p_seq_id" : "collective_seq_id"), -1);
    if (name.empty() || number < 0 || Integer(Find(*entry, "pg_id"), -1) != newest_id[name]) continue;
    GroupEntries& own = found[name];
    // The last entry of coalesced operations has the numbers of both kinds.
    const bool ends = own.newest != nullptr && Text(Find(*entry, "profiling_name")) == "nccl:coalesced";
    if (!ends) own.newest = &(message ? own.messages : own.collectives)[number];
    own.newest->push_back(&*entry);
  }
  for (const auto& [name, own] : found) {
    if (groups->size() >= kMostGroups) return;
    hang::v1::Group& group = groups->emplace_back();
    const bool is_shared = std::any_of(later.begin(), later.end(), [&own = own](const Json* other) {
      const Json& tuple = *Find(own.any(), "process_group");
      const Json* const configured = Find(*other, "pg_config");
      return configured != nullptr && Find(*configured, Text(&tuple[0]).c_str()) != nullptr;
    });
    group.set_name(is_shared ? absl::StrCat(name, " (gloo)") : name);
    // A message has the number of the last collective before it.
    group.set_entered(own.collectives.empty() ? Integer(Find(own.any(), "collective_seq_id"), 0)
                                              : own.collectives.rbegin()->first);
    if (name != kDefaultGroup) ReadMembers(recorder, own.any(), &group);
    const Json* const all_counters = Find(recorder, "pg_status");
    const Json* counters =
        all_counters == nullptr ? nullptr : Find(*all_counters, absl::StrCat(newest_id[name]).c_str());
    // These are not numbers of collectives in a group with messages, which Gloo counts and does not record.
    if (!own.messages.empty() || IsHooks(own.any()) ||
        (counters != nullptr && Integer(Find(*counters, "last_enqueued_collective"), -1) > group.entered())) {
      counters = nullptr;
    }
    const auto counter = [counters](const char* counter_name, int64_t otherwise) {
      return counters == nullptr ? otherwise : Integer(Find(*counters, counter_name), otherwise);
    };
    int skipped = std::max<int>(0, static_cast<int>(own.collectives.size()) - kMostCollectives);
    for (const auto& [number, parts] : own.collectives) {
      if (skipped-- > 0) continue;
      hang::v1::Collective* const collective = group.add_collectives();
      *collective = ReadOperation(*parts.front(), number, now);
      // Entries from the capture of a CUDA graph are never retired, and not counted as enqueued.
      collective->set_pending(IsOpen(*parts.back()) && counter("last_completed_collective", -1) < number &&
                              number <= counter("last_enqueued_collective", number));
    }
    for (const auto& [number, parts] : own.messages) {
      if (!IsOpen(*parts.back())) continue;
      for (const Json* const entry : parts) {
        if (!IsTrue(Find(*entry, "is_p2p"))) continue;
        if (group.point_to_point_size() >= kMostCollectives) break;
        hang::v1::Collective* const message = group.add_point_to_point();
        *message = ReadOperation(*entry, number, now);
        message->set_pending(true);
        message->set_order(ReadOperation(*parts.front(), number, now).order());  // they begin together
      }
    }
  }
}

}  // namespace

Counters ParseCounters(absl::string_view answer) {
  constexpr int64_t kMostCounted = int64_t{1} << 40;  // so that no sum overflows
  Counters found;
  for (const Json& recorder : ParseRecorders(answer)) {
    const Json* const groups = Find(recorder, "pg_status");
    if (groups == nullptr || !groups->is_object()) continue;
    for (const auto& [id, counters] : groups->items()) {
      const int64_t enqueued = Integer(Find(counters, "last_enqueued_collective"), -1);
      const int64_t completed = Integer(Find(counters, "last_completed_collective"), -1);
      absl::StrAppend(&found.text, enqueued, " ", Integer(Find(counters, "last_started_collective"), -1), " ",
                      completed, " ");
      found.waits = found.waits || enqueued > completed;
      found.entered += std::clamp<int64_t>(enqueued, 0, kMostCounted);
    }
    if (!groups->empty()) found.text.push_back(';');
  }
  return found;
}

std::vector<hang::v1::Group> ParseCollectives(absl::string_view answer, absl::Time now) {
  const std::vector<Json> recorders = ParseRecorders(answer);
  std::vector<hang::v1::Group> groups;
  for (size_t i = 0; i < recorders.size(); ++i) {
    std::vector<const Json*> later;
    for (size_t j = i + 1; j < recorders.size(); ++j) later.push_back(&recorders[j]);
    ReadRecorder(recorders[i], later, now, &groups);
  }
  return groups;
}

// ---- stacks ----

namespace {

// Reads `  File "train.py", line 3 in main`. False: the line has another form.
bool ReadFrame(absl::string_view line, hang::v1::Frame* frame) {
  const size_t file = line.find_first_not_of(' ');
  if (file == line.npos || !absl::ConsumePrefix(&(line = line.substr(file)), "File \"")) return false;
  const size_t file_end = line.rfind("\", line ");
  if (file_end == line.npos) return false;
  absl::string_view rest = line.substr(file_end);
  absl::ConsumePrefix(&rest, "\", line ");
  const size_t number_end = rest.find(" in ");
  int32_t number = 0;
  if (number_end == rest.npos || !absl::SimpleAtoi(rest.substr(0, number_end), &number)) return false;
  frame->set_file(std::string(line.substr(0, file_end)));
  frame->set_line(number);
  frame->set_function(std::string(rest.substr(number_end + 4)));
  return true;
}

template <typename Frames>
void AddFrame(absl::string_view line, Frames* frames) {
  hang::v1::Frame frame;
  if (frames->size() < kMostFrames && ReadFrame(line, &frame)) *frames->Add() = std::move(frame);
}

}  // namespace

void ParsePythonStacks(absl::string_view answer, hang::v1::Process* process) {
  std::vector<hang::v1::PythonThread> threads;
  bool cut = false;
  for (const absl::string_view line : absl::StrSplit(answer, '\n')) {
    const bool holds_lock = absl::StartsWith(line, "Current thread ");
    if (holds_lock || absl::StartsWith(line, "Thread ")) {
      threads.emplace_back().set_holds_lock(holds_lock);
    } else if (line == "...") {
      cut = true;  // faulthandler prints a hundred threads
    } else if (!threads.empty()) {
      AddFrame(line, threads.back().mutable_frames());
    }
  }
  if (!threads.empty() && !cut) {
    // Python's list begins with the newest thread.
    if (process->frames().empty()) process->mutable_frames()->Swap(threads.back().mutable_frames());
    threads.pop_back();
  }
  for (hang::v1::PythonThread& thread : threads) {
    if (process->threads_size() < kMostThreads) *process->add_threads() = std::move(thread);
  }
}

void ParseMainStack(absl::string_view text, hang::v1::Process* process) {
  bool native = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "Native stack")) {
      native = true;
    } else if (!native) {
      AddFrame(line, process->mutable_frames());
    } else if (!line.empty() && process->native_size() < kMaxNativeLines) {
      process->add_native(std::string(absl::StripAsciiWhitespace(line)));
    }
  }
}

}  // namespace ddprun::launcher
