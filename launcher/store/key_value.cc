#include "launcher/store/key_value.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {
namespace {

// Overhead of a table entry: two strings, a table slot at half load, one or two heap blocks. Approximate on purpose.
constexpr size_t kEntryBytes = 160;
constexpr size_t kQueueItemBytes = 64;

constexpr size_t kLengthBytes = sizeof(uint64_t);

template <typename Integer>
Reply IntegerReply(ClientId client, Integer number) {
  Reply reply{client, {}};
  AppendInteger(number, &reply.bytes);
  return reply;
}

Reply StringReply(ClientId client, absl::string_view text) {
  Reply reply{client, {}};
  AppendString(text, &reply.bytes);
  return reply;
}

// Parses like C's strtoll in base 10: white space, a sign, and leading digits.
std::optional<int64_t> LeadingNumber(absl::string_view text) {
  while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text[0]))) text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc()) return std::nullopt;
  return number;
}

// Overflow wraps around, as torch's sums do in practice.
int64_t WrappingSum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

absl::Status ReplyTooLarge(size_t max_reply_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("a reply of more than ", max_reply_bytes, " bytes was requested"));
}

}  // namespace

absl::Status KeyValue::Apply(ClientId client, Request request, size_t max_reply_bytes, std::vector<Reply>* replies) {
  switch (request.opcode) {
    case Opcode::kSet: return Set(request, replies);
    case Opcode::kAppend: return Append(request, replies);
    case Opcode::kMultiSet: return MultiSet(request, replies);
    case Opcode::kCompareSet: return CompareSet(client, request, max_reply_bytes, replies);
    case Opcode::kGet:
    case Opcode::kMultiGet: return Get(client, request, max_reply_bytes, replies);
    case Opcode::kAdd:
    case Opcode::kBarrier: return AddOrBarrier(client, request, replies);
    case Opcode::kCheck:
    case Opcode::kWait: return CheckOrWait(client, request, replies);
    case Opcode::kNumKeys: replies->push_back(IntegerReply<int64_t>(client, values_.size())); return absl::OkStatus();
    case Opcode::kDeleteKey:
      replies->push_back(IntegerReply<int64_t>(client, DeleteKey(request.keys[0]) ? 1 : 0));
      return absl::OkStatus();
    case Opcode::kCancelWait:
      // A wake-up that crossed this request on the wire stays sent; the client reads both.
      EndWait(client);
      replies->push_back(IntegerReply(client, kWaitCanceled));
      return absl::OkStatus();
    case Opcode::kQueuePush: return QueuePush(request, replies);
    case Opcode::kQueuePop: return QueuePop(client, request, max_reply_bytes, replies);
    case Opcode::kQueueLength:
      replies->push_back(IntegerReply<int64_t>(client, QueueLength(request.keys[0])));
      return absl::OkStatus();
    case Opcode::kListKeys: return ListKeys(client, max_reply_bytes, replies);
    case Opcode::kValidate:
    case Opcode::kPing:
    case Opcode::kRegisterNode:
    case Opcode::kEvidence: break;
  }
  return absl::InvalidArgumentError("a request that is not for the store's content");
}

void KeyValue::Forget(ClientId client) { EndWait(client); }

std::vector<KeyValue::Pending> KeyValue::PendingWaits() const {
  absl::btree_map<uint64_t, Pending> by_age;
  for (const auto& [client, wait] : waits_) {
    by_age[wait.number] = {client, wait.number, *std::min_element(wait.missing.begin(), wait.missing.end())};
  }
  std::vector<Pending> pending;
  for (auto& [number, one] : by_age) pending.push_back(std::move(one));
  return pending;
}

absl::Status KeyValue::Set(Request& request, std::vector<Reply>* replies) {
  DDPRUN_RETURN_IF_ERROR(Reserve(request.keys[0].size() + request.values[0].size() + kEntryBytes));
  Store(request.keys[0], std::move(request.values[0]));
  Wake(request.keys[0], /*only_one=*/false, replies);
  return absl::OkStatus();
}

absl::Status KeyValue::Append(Request& request, std::vector<Reply>* replies) {
  const std::string& key = request.keys[0];
  auto it = values_.find(key);
  if (it == values_.end()) return Set(request, replies);
  DDPRUN_RETURN_IF_ERROR(Reserve(request.values[0].size()));
  it->second += request.values[0];
  bytes_ += request.values[0].size();
  Wake(key, /*only_one=*/false, replies);
  return absl::OkStatus();
}

absl::Status KeyValue::MultiSet(Request& request, std::vector<Reply>* replies) {
  size_t more = 0;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    more += request.keys[i].size() + request.values[i].size() + kEntryBytes;
  }
  DDPRUN_RETURN_IF_ERROR(Reserve(more));
  for (size_t i = 0; i < request.keys.size(); ++i) {
    Store(request.keys[i], std::move(request.values[i]));
    Wake(request.keys[i], /*only_one=*/false, replies);
  }
  return absl::OkStatus();
}

// key      expected   effect  reply
// missing  empty      stored  desired
// missing  not empty  -       expected (as in torch's documentation)
// present  equal      stored  desired
// present  different  -       the current value
absl::Status KeyValue::CompareSet(ClientId client, Request& request, size_t max_reply_bytes,
                                  std::vector<Reply>* replies) {
  const std::string& key = request.keys[0];
  const std::string& expected = request.values[0];
  std::string& desired = request.values[1];
  const auto it = values_.find(key);
  if (it == values_.end() && !expected.empty()) {
    replies->push_back(StringReply(client, expected));
    return absl::OkStatus();
  }
  if (it != values_.end() && it->second != expected) {
    if (it->second.size() + kLengthBytes > max_reply_bytes) return ReplyTooLarge(max_reply_bytes);
    replies->push_back(StringReply(client, it->second));
    return absl::OkStatus();
  }
  DDPRUN_RETURN_IF_ERROR(Reserve(key.size() + desired.size() + kEntryBytes));
  replies->push_back(StringReply(client, desired));
  Store(key, std::move(desired));
  Wake(key, /*only_one=*/false, replies);
  return absl::OkStatus();
}

// A missing key reads as an empty value.
absl::Status KeyValue::Get(ClientId client, const Request& request, size_t max_reply_bytes,
                           std::vector<Reply>* replies) const {
  size_t size = 0;
  for (const std::string& key : request.keys) {
    const auto it = values_.find(key);
    size += kLengthBytes + (it == values_.end() ? 0 : it->second.size());
    if (size > max_reply_bytes) return ReplyTooLarge(max_reply_bytes);
  }
  Reply reply{client, {}};
  reply.bytes.reserve(size);
  for (const std::string& key : request.keys) {
    const auto it = values_.find(key);
    AppendString(it == values_.end() ? absl::string_view() : it->second, &reply.bytes);
  }
  if (size > 0) replies->push_back(std::move(reply));
  return absl::OkStatus();
}

absl::Status KeyValue::AddOrBarrier(ClientId client, Request& request, std::vector<Reply>* replies) {
  const std::string& key = request.keys[0];
  const bool is_barrier = request.opcode == Opcode::kBarrier;
  int64_t sum = is_barrier ? 1 : request.number;
  if (const auto it = values_.find(key); it != values_.end()) {
    const std::optional<int64_t> number = LeadingNumber(it->second);
    if (!number.has_value())
      return absl::FailedPreconditionError("ADD or BARRIER on a key whose value is not a number");
    sum = WrappingSum(sum, *number);
  }
  std::string text = absl::StrCat(sum);
  DDPRUN_RETURN_IF_ERROR(Reserve(3 * (key.size() + kEntryBytes) + text.size()));
  Store(key, std::move(text));
  if (is_barrier && sum < request.number) return BeginWait(client, {key});
  replies->push_back(is_barrier ? IntegerReply(client, kStopWaiting) : IntegerReply<int64_t>(client, sum));
  Wake(key, /*only_one=*/false, replies);
  return absl::OkStatus();
}

absl::Status KeyValue::CheckOrWait(ClientId client, Request& request, std::vector<Reply>* replies) {
  absl::flat_hash_set<std::string> missing;
  for (std::string& key : request.keys) {
    if (!IsPresent(key)) missing.insert(std::move(key));
  }
  if (request.opcode == Opcode::kCheck) {
    replies->push_back(IntegerReply(client, missing.empty() ? kCheckReady : kCheckNotReady));
    return absl::OkStatus();
  }
  if (!missing.empty()) return BeginWait(client, std::move(missing));
  replies->push_back(IntegerReply(client, kStopWaiting));
  return absl::OkStatus();
}

absl::Status KeyValue::QueuePush(Request& request, std::vector<Reply>* replies) {
  const std::string& key = request.keys[0];
  const size_t item = request.values[0].size() + kQueueItemBytes;
  const size_t more = item + (queues_.contains(key) ? 0 : key.size() + kEntryBytes);
  DDPRUN_RETURN_IF_ERROR(Reserve(more));
  bytes_ += more;
  queues_[key].push_back(std::move(request.values[0]));
  Wake(key, /*only_one=*/true, replies);
  return absl::OkStatus();
}

absl::Status KeyValue::QueuePop(ClientId client, const Request& request, size_t max_reply_bytes,
                                std::vector<Reply>* replies) {
  const auto it = queues_.find(request.keys[0]);
  if (it == queues_.end()) {
    replies->push_back(IntegerReply<int64_t>(client, 0));
    return absl::OkStatus();
  }
  const std::string& item = it->second.front();
  if (sizeof(int64_t) + kLengthBytes + item.size() > max_reply_bytes) return ReplyTooLarge(max_reply_bytes);
  Reply reply = IntegerReply<int64_t>(client, it->second.size());
  AppendString(item, &reply.bytes);
  replies->push_back(std::move(reply));
  bytes_ -= item.size() + kQueueItemBytes;
  it->second.pop_front();
  if (it->second.empty()) {
    bytes_ -= it->first.size() + kEntryBytes;
    queues_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status KeyValue::ListKeys(ClientId client, size_t max_reply_bytes, std::vector<Reply>* replies) const {
  const size_t size = sizeof(int64_t) + values_.size() * kLengthBytes + key_bytes_;
  if (size > max_reply_bytes) return ReplyTooLarge(max_reply_bytes);
  Reply reply = IntegerReply<int64_t>(client, values_.size());
  reply.bytes.reserve(size);
  for (const auto& [key, value] : values_) AppendString(key, &reply.bytes);
  replies->push_back(std::move(reply));
  return absl::OkStatus();
}

bool KeyValue::DeleteKey(const std::string& key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return false;
  bytes_ -= key.size() + it->second.size() + kEntryBytes;
  key_bytes_ -= key.size();
  values_.erase(it);
  return true;
}

int64_t KeyValue::QueueLength(const std::string& key) const {
  const auto it = queues_.find(key);
  return it == queues_.end() ? 0 : static_cast<int64_t>(it->second.size());
}

absl::Status KeyValue::Reserve(size_t more) const {
  if (more <= max_bytes_ && bytes_ <= max_bytes_ - more) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the store is full (", max_bytes_, " bytes)"));
}

void KeyValue::Store(std::string key, std::string value) {
  const size_t key_size = key.size();
  const auto [it, is_new] = values_.try_emplace(std::move(key));
  if (is_new) {
    bytes_ += key_size + kEntryBytes;
    key_bytes_ += key_size;
  }
  bytes_ -= it->second.size();
  bytes_ += value.size();
  it->second = std::move(value);
}

absl::Status KeyValue::BeginWait(ClientId client, absl::flat_hash_set<std::string> missing) {
  EndWait(client);
  size_t more = 0;
  for (const std::string& key : missing) more += 2 * key.size() + 2 * kEntryBytes;
  DDPRUN_RETURN_IF_ERROR(Reserve(more));
  bytes_ += more;
  const uint64_t number = next_wait_++;
  for (const std::string& key : missing) waiters_[key].emplace(number, client);
  waits_[client] = {number, std::move(missing)};
  return absl::OkStatus();
}

void KeyValue::EndWait(ClientId client) {
  const auto wait = waits_.find(client);
  if (wait == waits_.end()) return;
  for (const std::string& key : wait->second.missing) {
    bytes_ -= 2 * key.size() + 2 * kEntryBytes;
    const auto waiters = waiters_.find(key);
    waiters->second.erase(wait->second.number);
    if (waiters->second.empty()) waiters_.erase(waiters);
  }
  waits_.erase(wait);
}

void KeyValue::Wake(const std::string& key, bool only_one, std::vector<Reply>* replies) {
  const auto waiters = waiters_.find(key);
  if (waiters == waiters_.end()) return;
  while (!waiters->second.empty()) {
    const auto oldest = waiters->second.begin();
    const ClientId client = oldest->second;
    waiters->second.erase(oldest);
    bytes_ -= 2 * key.size() + 2 * kEntryBytes;
    const auto wait = waits_.find(client);
    wait->second.missing.erase(key);
    if (!wait->second.missing.empty()) continue;
    waits_.erase(wait);
    replies->push_back(IntegerReply(client, kStopWaiting));
    if (only_one) break;
  }
  if (waiters->second.empty()) waiters_.erase(waiters);
}

}  // namespace ddprun::launcher
