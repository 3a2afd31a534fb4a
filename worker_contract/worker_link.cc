#include "worker_contract/worker_link.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
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

// Encodes non-finite numbers as strings, because JSON has no numbers for them.
Json NumberToJson(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

constexpr int64_t kMaxPid = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxPort = 65535;

// Writes the fields of a message into an object.
class Writer {
 public:
  template <typename T>
  void Integer(const char* name, const T& value, int64_t /*most*/ = 0) {
    object[name] = value;
  }
  template <typename T>
  void Integer(const char* name, const std::optional<T>& value) {
    if (value) object[name] = *value;
  }
  void Flag(const char* name, bool value) { object[name] = value; }
  void Deadline(absl::Duration value) { object["deadline"] = absl::ToDoubleSeconds(value); }
  void Address(const char* name, const std::string& value) { object[name] = value; }
  void Number(const char* name, const std::optional<double>& value) {
    if (value) object[name] = NumberToJson(*value);
  }
  void Text(const char* name, const std::string& value, size_t max_bytes) { object[name] = Cut(value, max_bytes); }
  void OptionalText(const char* name, const std::string& value, size_t max_bytes) {
    if (!value.empty()) Text(name, value, max_bytes);
  }
  void Texts(const char* name, const std::vector<std::string>& values, size_t max_count, size_t max_bytes) {
    Json& texts = object[name] = Json::array();
    for (const std::string& value : values) {
      if (texts.size() < max_count) texts.push_back(Cut(value, max_bytes));
    }
  }

  Json object;
};

// Reads the fields of a message from an object. The first error is kept; fields that are missing keep their values.
class Reader {
 public:
  Reader(const Json& object, absl::string_view type) : object_(object), type_(type) {}

  const absl::Status& status() const { return status_; }

  // From 0 to `most`.
  template <typename T>
  void Integer(const char* name, T& value, int64_t most = std::numeric_limits<std::make_signed_t<T>>::max()) {
    const Json* const found = Find(name);
    if (found == nullptr) return Fail(name, "is missing");
    // Unsigned values above the range of int64_t are out of range too.
    if (found->is_number_unsigned() && found->get<uint64_t>() <= static_cast<uint64_t>(most)) {
      value = static_cast<T>(found->get<int64_t>());
    } else {
      Fail(name, absl::StrCat("must be an integer from 0 to ", most));
    }
  }
  template <typename T>
  void Integer(const char* name, std::optional<T>& value) {
    if (Find(name) != nullptr) Integer(name, value.emplace());
  }

  void Flag(const char* name, bool& value) {
    const Json* const found = Find(name);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(name, "must be true or false");
    value = found->get<bool>();
  }

  // A number of seconds.
  void Deadline(absl::Duration& value) {
    const Json* const found = Find("deadline");
    const double seconds = found != nullptr && found->is_number() ? found->get<double>() : -1;
    if (!(seconds >= 0 && seconds <= kMaxDeadlineSeconds)) {
      return Fail("deadline", "must be a number of seconds from 0 to 1e9");
    }
    value = absl::Seconds(seconds);
  }

  // Never truncated: a truncated address would be another host.
  void Address(const char* name, std::string& value) {
    Text(name, value, kMaxAddressBytes + 1);
    if (value.empty() || value.size() > kMaxAddressBytes) {
      Fail(name, absl::StrCat("must have 1 to ", kMaxAddressBytes, " bytes"));
    }
  }

  void Number(const char* name, std::optional<double>& value) {
    const Json* const found = Find(name);
    if (found == nullptr) return;
    if (found->is_number()) {
      value = found->get<double>();
    } else if (*found == "nan") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (*found == "inf" || *found == "-inf") {
      value = (*found == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
    } else {
      Fail(name, "must be a number, \"nan\", \"inf\" or \"-inf\"");
    }
  }

  void Text(const char* name, std::string& value, size_t max_bytes) {
    const Json* const found = Find(name);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(name, "must be a string");
    value = Cut(found->get_ref<const std::string&>(), max_bytes);
  }
  void OptionalText(const char* name, std::string& value, size_t max_bytes) { Text(name, value, max_bytes); }

  void Texts(const char* name, std::vector<std::string>& values, size_t max_count, size_t max_bytes) {
    const Json* const found = Find(name);
    if (found == nullptr) return;
    if (!found->is_array()) return Fail(name, "must be an array of strings");
    for (const Json& text : *found) {
      if (!text.is_string()) return Fail(name, "must be an array of strings");
      if (values.size() < max_count) values.push_back(Cut(text.get_ref<const std::string&>(), max_bytes));
    }
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

// ---- the fields of each message, for a Writer or a Reader ----

void ListFields(LinkHello& hello, auto& fields) {
  fields.Integer("version", hello.version);
  fields.Integer("local_rank", hello.local_rank);
  fields.Integer("rank", hello.rank);
  fields.Integer("pid", hello.pid, kMaxPid);
  fields.Texts("capabilities", hello.capabilities, kMaxCapabilities, kMaxCapabilityBytes);
}

void ListFields(LinkProgress& progress, auto& fields) {
  fields.Integer("step", progress.step);
  fields.Integer("samples", progress.samples);
  fields.OptionalText("phase", progress.phase, kMaxPhaseBytes);
  fields.Number("loss", progress.loss);
}

void ListFields(LinkSuspended& suspended, auto& fields) {
  fields.Integer("round", suspended.round);
  fields.Integer("step", suspended.step);
}

void ListFields(LinkReFormed& formed, auto& fields) {
  fields.Integer("round", formed.round);
  fields.Integer("step", formed.step);
  fields.Integer("source", formed.source);
}

void ListFields(LinkCheckpointed& checkpointed, auto& fields) { fields.Integer("step", checkpointed.step); }

void ListFields(LinkFailed& failed, auto& fields) {
  fields.Integer("round", failed.round);
  fields.Text("message", failed.message, kMaxReasonBytes);
}

void ListFields(LinkProbe& probe, auto& fields) {
  fields.Integer("version", probe.version);
  fields.Integer("pid", probe.pid, kMaxPid);
}

void ListFields(LinkStop& stop, auto& fields) {
  fields.Deadline(stop.deadline);
  fields.Text("reason", stop.reason, kMaxReasonBytes);
}

void ListFields(LinkCheckpointNow& checkpoint, auto& fields) { fields.Deadline(checkpoint.deadline); }

void ListFields(LinkSuspend& suspend, auto& fields) {
  fields.Integer("round", suspend.round);
  fields.Flag("at_step_end", suspend.at_step_end);
  fields.Text("reason", suspend.reason, kMaxReasonBytes);
  fields.Integer("blame", suspend.blame);
}

void ListFields(LinkReForm& form, auto& fields) {
  fields.Integer("round", form.round);
  fields.Integer("rank", form.rank);
  fields.Integer("world_size", form.world_size);
  fields.Integer("local_world_size", form.local_world_size);
  fields.Integer("group_rank", form.group_rank);
  fields.Integer("group_world_size", form.group_world_size);
  fields.Integer("role_rank", form.role_rank);
  fields.Integer("role_world_size", form.role_world_size);
  fields.Address("master_addr", form.master_addr);
  fields.Integer("master_port", form.master_port, kMaxPort);
  fields.Integer("restart_count", form.restart_count);
  fields.Integer("state_source", form.state_source);
  fields.Integer("state_step", form.state_step);
}

// ---- lines ----

template <typename Variant>
std::string Encode(Variant line) {
  return std::visit(
      [](auto& message) {
        Writer writer;
        writer.object["type"] = message.kType;
        ListFields(message, writer);
        return writer.object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
      },
      line);
}

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

template <typename Variant, typename Message>
absl::StatusOr<std::optional<Variant>> Read(const Json& object) {
  Reader reader(object, Message::kType);
  Message message;
  ListFields(message, reader);
  if (!reader.status().ok()) return reader.status();
  return std::optional<Variant>(std::move(message));
}

// `like` gives the messages that the line may have.
template <typename... Messages>
absl::StatusOr<std::optional<std::variant<Messages...>>> Decode(absl::string_view line,
                                                                const std::variant<Messages...>* /*like*/) {
  using Variant = std::variant<Messages...>;
  const absl::StatusOr<Json> object = ParseObject(line);
  if (!object.ok()) return object.status();
  const std::string& type = (*object)["type"].get_ref<const std::string&>();
  absl::StatusOr<std::optional<Variant>> result = std::nullopt;
  ((type == Messages::kType ? void(result = Read<Variant, Messages>(*object)) : void()), ...);
  return result;
}

}  // namespace

std::string EncodeMessage(const WorkerLinkMessage& line) { return Encode(line); }
std::string EncodeMessage(const LauncherLinkMessage& line) { return Encode(line); }

absl::StatusOr<std::optional<WorkerLinkMessage>> DecodeWorkerMessage(absl::string_view line) {
  return Decode(line, static_cast<const WorkerLinkMessage*>(nullptr));
}

absl::StatusOr<std::optional<LauncherLinkMessage>> DecodeLauncherMessage(absl::string_view line) {
  return Decode(line, static_cast<const LauncherLinkMessage*>(nullptr));
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
