#include "worker_contract/worker_link.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::worker_contract {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxCapabilityBytes = 32;
constexpr double kMaxDeadlineSeconds = 1e9;

// Truncates `text` to at most `max_bytes`, at a character boundary. base/text.h can do that too, but this folder is to
// be usable without any other one.
std::string Cut(absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    size_t end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  return std::string(text);
}

std::string Line(const Json& object) {
  std::string line = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  line.push_back('\n');
  return line;
}

// Encodes non-finite numbers as strings, because JSON has no numbers for them.
Json NumberToJson(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

// Reads the fields of one object. The first error is kept.
class Fields {
 public:
  Fields(const Json& object, absl::string_view type) : object_(object), type_(type) {}

  const absl::Status& status() const { return status_; }

  std::optional<int64_t> Integer(const char* name, int64_t most) {
    const Json* const value = Find(name);
    if (value == nullptr) return std::nullopt;
    // Unsigned values above the range of int64_t are out of range too.
    const bool fits = value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(most);
    if (fits) return value->get<int64_t>();
    Fail(name, absl::StrCat("must be an integer from 0 to ", most));
    return std::nullopt;
  }

  int64_t RequiredInteger(const char* name, int64_t most) {
    if (Find(name) == nullptr) Fail(name, "is missing");
    return Integer(name, most).value_or(0);
  }

  // False if the field is missing.
  bool Flag(const char* name) {
    const Json* const value = Find(name);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    Fail(name, "must be true or false");
    return false;
  }

  // The field "deadline", in seconds.
  absl::Duration RequiredDeadline() {
    const Json* const value = Find("deadline");
    const double seconds = value != nullptr && value->is_number() ? value->get<double>() : -1;
    if (seconds >= 0 && seconds <= kMaxDeadlineSeconds) return absl::Seconds(seconds);
    Fail("deadline", "must be a number of seconds from 0 to 1e9");
    return absl::ZeroDuration();
  }

  // Never truncated: a truncated address would be another host.
  std::string RequiredAddress(const char* name) {
    const std::string address = Text(name, kMaxAddressBytes + 1);
    if (!address.empty() && address.size() <= kMaxAddressBytes) return address;
    Fail(name, absl::StrCat("must have 1 to ", kMaxAddressBytes, " bytes"));
    return "";
  }

  std::optional<double> Number(const char* name) {
    const Json* const value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_number()) return value->get<double>();
    if (*value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*value == "inf") return std::numeric_limits<double>::infinity();
    if (*value == "-inf") return -std::numeric_limits<double>::infinity();
    Fail(name, "must be a number, \"nan\", \"inf\" or \"-inf\"");
    return std::nullopt;
  }

  std::string Text(const char* name, size_t max_bytes) {
    const Json* const value = Find(name);
    if (value == nullptr) return "";
    if (value->is_string()) return Cut(value->get_ref<const std::string&>(), max_bytes);
    Fail(name, "must be a string");
    return "";
  }

  std::vector<std::string> Texts(const char* name, size_t max_count, size_t max_bytes) {
    std::vector<std::string> texts;
    const Json* const value = Find(name);
    if (value == nullptr) return texts;
    if (!value->is_array()) Fail(name, "must be an array of strings");
    for (const Json& text : *value) {
      if (!text.is_string()) Fail(name, "must be an array of strings");
      if (!status_.ok() || texts.size() == max_count) break;
      texts.push_back(Cut(text.get_ref<const std::string&>(), max_bytes));
    }
    return texts;
  }

 private:
  // A null field counts as missing.
  const Json* Find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void Fail(const char* name, absl::string_view what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(type_, ": ", name, " ", what));
  }

  const Json& object_;
  const absl::string_view type_;
  absl::Status status_;
};

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxPort = 65535;
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

absl::StatusOr<Json> ParseObject(absl::string_view line) {
  if (line.size() >= kMaxLinkLine) {
    return absl::InvalidArgumentError(absl::StrCat("a line is longer than ", kMaxLinkLine, " bytes"));
  }
  Json object = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("a line is not a JSON object");
  const auto type = object.find("type");
  if (type == object.end() || !type->is_string()) {
    return absl::InvalidArgumentError("a line has no \"type\", which must be a string");
  }
  return object;
}

template <typename Variant, typename Value>
absl::StatusOr<std::optional<Variant>> Result(const Fields& fields, Value value) {
  if (!fields.status().ok()) return fields.status();
  return std::optional<Variant>(std::move(value));
}

Json ToJson(const LinkHello& hello) {
  Json capabilities = Json::array();
  for (const std::string& capability : hello.capabilities) {
    if (capabilities.size() < kMaxCapabilities) capabilities.push_back(Cut(capability, kMaxCapabilityBytes));
  }
  return {{"type", "hello"},    {"version", hello.version}, {"local_rank", hello.local_rank},
          {"rank", hello.rank}, {"pid", hello.pid},         {"capabilities", std::move(capabilities)}};
}

Json ToJson(const LinkProgress& progress) {
  Json object = {{"type", "progress"}, {"step", progress.step}};
  if (progress.samples) object["samples"] = *progress.samples;
  if (!progress.phase.empty()) object["phase"] = Cut(progress.phase, kMaxPhaseBytes);
  if (progress.loss) object["loss"] = NumberToJson(*progress.loss);
  return object;
}

Json ToJson(const LinkSuspended& suspended) {
  Json object = {{"type", "suspended"}, {"round", suspended.round}};
  if (suspended.step) object["step"] = *suspended.step;
  return object;
}

Json ToJson(const LinkReFormed& formed) {
  Json object = {{"type", "re-formed"}, {"round", formed.round}, {"step", formed.step}};
  if (formed.source) object["source"] = *formed.source;
  return object;
}

Json ToJson(const LinkCheckpointed& checkpointed) { return {{"type", "checkpointed"}, {"step", checkpointed.step}}; }

Json ToJson(const LinkFailed& failed) {
  return {{"type", "failed"}, {"round", failed.round}, {"message", Cut(failed.message, kMaxReasonBytes)}};
}

Json ToJson(const LinkCheckpointNow& checkpoint) {
  return {{"type", "checkpoint-now"}, {"deadline", absl::ToDoubleSeconds(checkpoint.deadline)}};
}

Json ToJson(const LinkSuspend& suspend) {
  Json object = {{"type", "suspend"},
                 {"round", suspend.round},
                 {"at_step_end", suspend.at_step_end},
                 {"reason", Cut(suspend.reason, kMaxReasonBytes)}};
  if (suspend.blame) object["blame"] = *suspend.blame;
  return object;
}

Json ToJson(const LinkReForm& form) {
  Json object = {{"type", "re-form"},
                 {"round", form.round},
                 {"rank", form.rank},
                 {"world_size", form.world_size},
                 {"local_world_size", form.local_world_size},
                 {"group_rank", form.group_rank},
                 {"group_world_size", form.group_world_size},
                 {"role_rank", form.role_rank},
                 {"role_world_size", form.role_world_size},
                 {"master_addr", form.master_addr},
                 {"master_port", form.master_port},
                 {"restart_count", form.restart_count}};
  if (form.state_source) object["state_source"] = *form.state_source;
  if (form.state_step) object["state_step"] = *form.state_step;
  return object;
}

Json ToJson(const LinkStop& stop) {
  return {{"type", "stop"},
          {"deadline", absl::ToDoubleSeconds(stop.deadline)},
          {"reason", Cut(stop.reason, kMaxReasonBytes)}};
}

LinkReForm ReadReForm(Fields* fields) {
  LinkReForm form;
  form.round = fields->RequiredInteger("round", kMaxInt64);
  form.rank = fields->RequiredInteger("rank", kMaxInt32);
  form.world_size = fields->RequiredInteger("world_size", kMaxInt32);
  form.local_world_size = fields->RequiredInteger("local_world_size", kMaxInt32);
  form.group_rank = fields->RequiredInteger("group_rank", kMaxInt32);
  form.group_world_size = fields->RequiredInteger("group_world_size", kMaxInt32);
  form.role_rank = fields->RequiredInteger("role_rank", kMaxInt32);
  form.role_world_size = fields->RequiredInteger("role_world_size", kMaxInt32);
  form.master_addr = fields->RequiredAddress("master_addr");
  form.master_port = fields->RequiredInteger("master_port", kMaxPort);
  form.restart_count = fields->RequiredInteger("restart_count", kMaxInt32);
  form.state_source = fields->Integer("state_source", kMaxInt32);
  form.state_step = fields->Integer("state_step", kMaxInt64);
  return form;
}

}  // namespace

std::string EncodeMessage(const WorkerLinkMessage& line) {
  return std::visit([](const auto& value) { return Line(ToJson(value)); }, line);
}

std::string EncodeMessage(const LauncherLinkMessage& line) {
  return std::visit([](const auto& value) { return Line(ToJson(value)); }, line);
}

absl::StatusOr<std::optional<WorkerLinkMessage>> DecodeWorkerMessage(absl::string_view line) {
  const absl::StatusOr<Json> object = ParseObject(line);
  if (!object.ok()) return object.status();
  const std::string& type = (*object)["type"].get_ref<const std::string&>();
  if (type == "hello") {
    Fields fields(*object, "hello");
    LinkHello hello;
    hello.version = fields.RequiredInteger("version", kMaxInt32);
    hello.local_rank = fields.RequiredInteger("local_rank", kMaxInt32);
    hello.rank = fields.RequiredInteger("rank", kMaxInt32);
    hello.pid = fields.RequiredInteger("pid", kMaxInt32);
    hello.capabilities = fields.Texts("capabilities", kMaxCapabilities, kMaxCapabilityBytes);
    return Result<WorkerLinkMessage>(fields, std::move(hello));
  }
  if (type == "progress") {
    Fields fields(*object, "progress");
    LinkProgress progress;
    progress.step = fields.RequiredInteger("step", kMaxInt64);
    progress.samples = fields.Integer("samples", kMaxInt64);
    progress.phase = fields.Text("phase", kMaxPhaseBytes);
    progress.loss = fields.Number("loss");
    return Result<WorkerLinkMessage>(fields, std::move(progress));
  }
  if (type == "suspended") {
    Fields fields(*object, "suspended");
    LinkSuspended suspended;
    suspended.round = fields.RequiredInteger("round", kMaxInt64);
    suspended.step = fields.Integer("step", kMaxInt64);
    return Result<WorkerLinkMessage>(fields, suspended);
  }
  if (type == "re-formed") {
    Fields fields(*object, "re-formed");
    LinkReFormed formed;
    formed.round = fields.RequiredInteger("round", kMaxInt64);
    formed.step = fields.RequiredInteger("step", kMaxInt64);
    formed.source = fields.Integer("source", kMaxInt32);
    return Result<WorkerLinkMessage>(fields, formed);
  }
  if (type == "checkpointed") {
    Fields fields(*object, "checkpointed");
    const LinkCheckpointed checkpointed{fields.RequiredInteger("step", kMaxInt64)};
    return Result<WorkerLinkMessage>(fields, checkpointed);
  }
  if (type == "failed") {
    Fields fields(*object, "failed");
    LinkFailed failed;
    failed.round = fields.RequiredInteger("round", kMaxInt64);
    failed.message = fields.Text("message", kMaxReasonBytes);
    return Result<WorkerLinkMessage>(fields, std::move(failed));
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<LauncherLinkMessage>> DecodeLauncherMessage(absl::string_view line) {
  const absl::StatusOr<Json> object = ParseObject(line);
  if (!object.ok()) return object.status();
  const std::string& type = (*object)["type"].get_ref<const std::string&>();
  if (type == "stop") {
    Fields fields(*object, "stop");
    LinkStop stop;
    stop.deadline = fields.RequiredDeadline();
    stop.reason = fields.Text("reason", kMaxReasonBytes);
    return Result<LauncherLinkMessage>(fields, std::move(stop));
  }
  if (type == "checkpoint-now") {
    Fields fields(*object, "checkpoint-now");
    const LinkCheckpointNow checkpoint{fields.RequiredDeadline()};
    return Result<LauncherLinkMessage>(fields, checkpoint);
  }
  if (type == "suspend") {
    Fields fields(*object, "suspend");
    LinkSuspend suspend;
    suspend.round = fields.RequiredInteger("round", kMaxInt64);
    suspend.at_step_end = fields.Flag("at_step_end");
    suspend.reason = fields.Text("reason", kMaxReasonBytes);
    suspend.blame = fields.Integer("blame", kMaxInt32);
    return Result<LauncherLinkMessage>(fields, std::move(suspend));
  }
  if (type == "re-form") {
    Fields fields(*object, "re-form");
    LinkReForm form = ReadReForm(&fields);
    return Result<LauncherLinkMessage>(fields, std::move(form));
  }
  return std::nullopt;
}

absl::Status LineReader::Read(absl::string_view bytes, std::vector<std::string>* lines) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const absl::string_view part = bytes.substr(0, end);
    if (partial_.size() + part.size() >= kMaxLinkLine) {
      return absl::InvalidArgumentError(absl::StrCat("a line is longer than ", kMaxLinkLine, " bytes"));
    }
    partial_.append(part.data(), part.size());
    if (end == absl::string_view::npos) return absl::OkStatus();
    lines->push_back(std::exchange(partial_, std::string()));
    bytes.remove_prefix(end + 1);
  }
  return absl::OkStatus();
}

}  // namespace ddprun::worker_contract
