#include "launcher/store/request_parser.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun::launcher {
namespace {

// TCPStore sends integers in the sender's byte order.
static_assert(std::endian::native == std::endian::little, "the store protocol is little-endian");

// Layout of each request after its opcode, one letter per field:
//   w u32    q i64    k key    v value    r registration    n count: the following fields are repeated that many times
// Null: no such request.
const char* ShapeOf(uint8_t opcode) {
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kValidate: return "w";
    case Opcode::kSet: return "kv";
    case Opcode::kCompareSet: return "kvv";
    case Opcode::kGet: return "k";
    case Opcode::kAdd: return "kq";
    case Opcode::kCheck: return "nk";
    case Opcode::kWait: return "nk";
    case Opcode::kNumKeys: return "";
    case Opcode::kDeleteKey: return "k";
    case Opcode::kAppend: return "kv";
    case Opcode::kMultiGet: return "nk";
    case Opcode::kMultiSet: return "nkv";
    case Opcode::kCancelWait: return "";
    case Opcode::kPing: return "w";
    case Opcode::kQueuePush: return "kv";
    case Opcode::kQueuePop: return "k";
    case Opcode::kQueueLength: return "k";
    case Opcode::kListKeys: return "";
    case Opcode::kBarrier: return "kq";
    case Opcode::kRegisterNode: return "r";
    case Opcode::kEvidence: return "e";
  }
  return nullptr;
}

// An empty input buffer larger than this is freed.
constexpr size_t kKeptCapacity = 4096;

}  // namespace

RequestParser::Outcome RequestParser::Next(Request* request) {
  Step step = error_.empty() ? Step::kTaken : Step::kBad;
  if (step == Step::kTaken && fields_.data() == nullptr) step = Begin();
  while (step == Step::kTaken && field_ < fields_.size()) step = TakeField();
  if (step != Step::kTaken) {
    DropConsumed();
    return step == Step::kBad ? Outcome::kBad : Outcome::kNeedMore;
  }
  *request = std::exchange(partial_, Request());
  fields_ = absl::string_view();
  partial_bytes_ = 0;
  return Outcome::kRequest;
}

std::optional<uint8_t> RequestParser::next_opcode() const {
  if (fields_.data() != nullptr) return static_cast<uint8_t>(partial_.opcode);
  if (available() == 0) return std::nullopt;
  return static_cast<uint8_t>(buffer_[consumed_]);
}

RequestParser::Step RequestParser::Begin() {
  if (available() == 0) return Step::kNeedMore;
  const auto opcode = static_cast<uint8_t>(buffer_[consumed_]);
  const char* shape = ShapeOf(opcode);
  if (shape == nullptr) return Fail(absl::StrFormat("unknown request 0x%02x", opcode));
  ++consumed_;
  partial_.opcode = static_cast<Opcode>(opcode);
  fields_ = shape;
  field_ = 0;
  repeats_ = 0;
  request_bytes_ = 1;
  return Step::kTaken;
}

// Consumes the next field, if it has arrived completely.
RequestParser::Step RequestParser::TakeField() {
  Step step = Step::kTaken;
  switch (fields_[field_]) {
    case 'w': step = TakeNumber(sizeof(uint32_t)); break;
    case 'q': step = TakeNumber(sizeof(int64_t)); break;
    case 'n': return TakeCount();
    case 'k': {
      std::string key;
      step = TakeString(limits_.key_bytes, "key", &key);
      if (step == Step::kTaken) partial_.keys.push_back(std::move(key));
      break;
    }
    case 'v': step = TakeValue(limits_.value_bytes, "value"); break;
    case 'r': step = TakeValue(limits_.registration_bytes, "registration"); break;
    case 'e': step = TakeValue(limits_.evidence_bytes, "message"); break;
  }
  if (step != Step::kTaken) return step;
  ++field_;
  if (field_ == fields_.size() && repeats_ > 1) {
    --repeats_;
    field_ = 1;
  }
  return Step::kTaken;
}

RequestParser::Step RequestParser::TakeNumber(size_t width) {
  if (available() < width) return Step::kNeedMore;
  if (width == sizeof(uint32_t)) {
    uint32_t number;
    std::memcpy(&number, &buffer_[consumed_], sizeof number);
    partial_.number = number;
  } else {
    std::memcpy(&partial_.number, &buffer_[consumed_], sizeof partial_.number);
  }
  consumed_ += width;
  return Step::kTaken;
}

RequestParser::Step RequestParser::TakeString(uint64_t limit, absl::string_view what, std::string* text) {
  uint64_t length;
  if (available() < sizeof length) return Step::kNeedMore;
  std::memcpy(&length, &buffer_[consumed_], sizeof length);
  if (length > limit) return Fail(absl::StrCat("a ", what, " of ", length, " bytes; at most ", limit));
  const uint64_t request_bytes = request_bytes_ + sizeof length + length;
  if (request_bytes > limits_.request_bytes) {
    return Fail(absl::StrCat("a request of more than ", limits_.request_bytes, " bytes"));
  }
  if (available() - sizeof length < length) return Step::kNeedMore;
  text->assign(buffer_, consumed_ + sizeof length, length);
  consumed_ += sizeof length + length;
  request_bytes_ = request_bytes;
  // A vector of strings may have twice the capacity it needs.
  partial_bytes_ += 2 * sizeof(std::string) + text->capacity();
  return Step::kTaken;
}

RequestParser::Step RequestParser::TakeValue(uint64_t limit, absl::string_view what) {
  std::string value;
  const Step step = TakeString(limit, what, &value);
  if (step == Step::kTaken) partial_.values.push_back(std::move(value));
  return step;
}

RequestParser::Step RequestParser::TakeCount() {
  uint64_t count;
  if (available() < sizeof count) return Step::kNeedMore;
  std::memcpy(&count, &buffer_[consumed_], sizeof count);
  if (count > limits_.list_items) {
    return Fail(absl::StrCat("a list of ", count, " items; at most ", limits_.list_items));
  }
  consumed_ += sizeof count;
  repeats_ = count;
  field_ = count == 0 ? fields_.size() : 1;
  return Step::kTaken;
}

RequestParser::Step RequestParser::Fail(std::string why) {
  error_ = std::move(why);
  return Step::kBad;
}

// Called only when no further field is complete, so that the remaining bytes are moved once.
void RequestParser::DropConsumed() {
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  if (buffer_.empty() && buffer_.capacity() > kKeptCapacity) std::string().swap(buffer_);
}

}  // namespace ddprun::launcher
