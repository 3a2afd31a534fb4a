#include "launcher/config/visible_devices.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxShownBytes = 80;
// Applies where no device is found: torchrun's rule.
constexpr Vendor kUnknown = {"GPU", "", "", nullptr, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"};

bool IsName(absl::string_view device) { return absl::StartsWith(device, "GPU-") || absl::StartsWith(device, "MIG-"); }

std::optional<Found<std::string>> FindList(const DeviceFacts& facts, const char* name) {
  const auto list = name == nullptr ? facts.lists.end() : facts.lists.find(name);
  if (list == facts.lists.end()) return std::nullopt;
  return Found<std::string>{std::string(TrimValue(list->second)),
                            absl::StrCat(name, "=", Visible(list->second, kMaxShownBytes))};
}

// Finds the device of a list's entry. A part of a GPU has the location of its GPU, if the entry names that.
std::optional<Device> Find(const std::vector<Device>& devices, const std::string& entry) {
  int index = 0;
  if (absl::SimpleAtoi(entry.substr(0, entry.find('.')), &index)) {
    const auto device = std::find_if(devices.begin(), devices.end(), [&](const Device& d) { return d.index == index; });
    return device == devices.end() ? std::nullopt : std::make_optional(*device);
  }
  const bool is_part = absl::StartsWith(entry, "MIG-");
  const std::string gpu = is_part ? entry.substr(4, entry.find('/') - 4) : entry;
  Device device{.index = -1};
  int matches = 0, names = 0;
  for (const Device& d : devices) {
    if (!d.name.empty()) ++names;
    if (d.name.empty() || !absl::StartsWithIgnoreCase(d.name, gpu)) continue;
    ++matches;
    device = d;
  }
  if (matches > 1 || (matches == 0 && names > 0 && !is_part)) return std::nullopt;
  if (is_part || matches == 0) device.name = entry;
  if (is_part) device.mig_devices = 1;
  return device;
}

// Selects the devices of a list. The first entry without a device ends it, and a repeated one leaves no device, as in
// CUDA and HIP. Tiles of one device are one.
std::vector<Device> Select(const std::vector<Device>& devices, const std::vector<std::string>& entries) {
  std::vector<Device> selected;
  for (const std::string& entry : entries) {
    if (std::count(entries.begin(), entries.end(), entry) > 1) return {};
    const std::optional<Device> device = Find(devices, entry);
    if (!device || devices.empty()) break;
    const bool is_tile = entry.find('.') != std::string::npos;
    if (is_tile && !selected.empty() && selected.back().index == device->index) continue;
    selected.push_back(*device);
  }
  return selected;
}

absl::StatusOr<ChosenDevices> Choose(const DeviceFacts& facts, const Vendor& vendor,
                                     const std::vector<Device>& devices) {
  const std::string all = Counted(devices.size(), vendor.device);
  ChosenDevices chosen{.visible = devices, .source = "device files", .text = absl::StrCat("this node has ", all)};
  const auto apply = [&](const Found<std::string>& list) -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(chosen.entries, ParseVisibleDevices(list));
    chosen.source = list.source;
    if (chosen.visible.empty()) return absl::OkStatus();
    chosen.visible = Select(chosen.visible, *chosen.entries);
    if (!chosen.visible.empty()) return absl::OkStatus();
    const std::vector<std::string>& entries = *chosen.entries;
    const bool repeats = std::set<std::string>(entries.begin(), entries.end()).size() < entries.size();
    absl::StrAppend(&chosen.text, ", but ", list.source,
                    entries.empty() ? " hides all"
                    : repeats       ? " repeats a device, which hides all"
                                    : " names none of them");
    return absl::OkStatus();
  };
  if (const auto outer = FindList(facts, vendor.outer)) {
    DDPRUN_RETURN_IF_ERROR(apply(*outer));
    for (size_t i = 0; i < chosen.visible.size(); ++i) chosen.visible[i].index = static_cast<int>(i);
    chosen.entries.reset();
    if (!chosen.visible.empty()) {
      absl::StrAppend(&chosen.text, ", of which ", outer->source, " leaves ", chosen.visible.size());
    }
  }
  std::optional<Found<std::string>> list = FindList(facts, vendor.variable);
  chosen.variables = {vendor.variable};
  if (vendor.stand_in != nullptr) {
    // A variable that takes precedence must not keep another device.
    if (!list || list->value.empty()) chosen.variables.clear();
    chosen.variables.insert(chosen.variables.begin(), vendor.stand_in);
    if (!list || list->value.empty()) list = FindList(facts, vendor.stand_in);
  }
  if (list) DDPRUN_RETURN_IF_ERROR(apply(*list));
  chosen.summary =
      absl::StrCat(chosen.visible.size() == devices.size() ? "" : absl::StrCat(chosen.visible.size(), " of "), all);
  return chosen;
}

// "this node has no NVIDIA GPU or AMD GPU (looked for ...), but 1 integrated Intel GPU".
std::string NothingText(const DeviceFacts& facts, absl::string_view word) {
  std::vector<absl::string_view> wanted, looked_for;
  std::vector<std::string> others;
  for (size_t i = 0; i < std::size(kVendors); ++i) {
    if (word.empty() || word == kVendors[i].word) {
      wanted.push_back(kVendors[i].device);
      looked_for.push_back(kVendors[i].looked_for);
    } else if (!facts.devices[i].empty()) {
      others.push_back(absl::StrCat(Counted(facts.devices[i].size(), kVendors[i].device), " (", kVendors[i].word, ")"));
    }
  }
  if (!facts.not_counted.empty()) others.push_back(facts.not_counted);
  return absl::StrCat("this node has no ", word.empty() ? "accelerator" : absl::StrJoin(wanted, " or "),
                      " (looked for ", absl::StrJoin(looked_for, ", "), ")", others.empty() ? "" : ", but ",
                      absl::StrJoin(others, " and "));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseVisibleDevices(const Found<std::string>& visible) {
  const bool has_tiles = absl::StartsWith(visible.source, "ZE_");
  const bool blank_ends = absl::StartsWith(visible.source, "ASCEND");
  std::vector<std::string> devices;
  for (const absl::string_view entry : absl::StrSplit(visible.value, ',')) {
    const absl::string_view device = TrimValue(entry);
    int index = 0, tile = 0;
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(device, absl::MaxSplits('.', 1));
    const bool is_index = absl::SimpleAtoi(device, &index) ||
                          (has_tiles && absl::SimpleAtoi(parts.first, &index) && absl::SimpleAtoi(parts.second, &tile));
    if (device.empty() || index < 0 || device == "NoDevFiles" || device == "none" || device == "void") break;
    if (blank_ends && device != entry) break;
    if (!is_index && !IsName(device)) {
      return absl::InvalidArgumentError(absl::StrCat(
          visible.source, " is not a list of devices, such as 0,1: correct it, or unset the variable for all devices"));
    }
    devices.emplace_back(device);
  }
  return devices;
}

absl::StatusOr<ChosenDevices> ChooseDevices(const DeviceFacts& facts, absl::string_view word, bool one_each) {
  std::optional<ChosenDevices> chosen;
  std::vector<std::string> found;
  for (size_t i = 0; i < std::size(kVendors); ++i) {
    if (facts.devices[i].empty() || (!word.empty() && word != kVendors[i].word)) continue;
    DDPRUN_ASSIGN_OR_RETURN(ChosenDevices next, Choose(facts, kVendors[i], facts.devices[i]));
    found.push_back(next.summary);
    if (!chosen || (chosen->visible.empty() && !next.visible.empty())) chosen = std::move(next);
  }
  if (!chosen) {
    DDPRUN_ASSIGN_OR_RETURN(ChosenDevices none, Choose(facts, kUnknown, {}));
    none.summary = "none";
    none.text = NothingText(facts, word);
    return none;
  }
  std::vector<Device>& visible = chosen->visible;
  int parts = 0;
  for (const Device& device : visible) parts += device.mig_devices;
  if (parts > 0 && !one_each) {
    const auto whole = [](const Device& device) { return device.mig_devices == 0; };
    const auto split = std::stable_partition(visible.begin(), visible.end(), whole);
    visible.erase(split == visible.begin() ? split + 1 : split, visible.end());
  }
  const auto seen = std::count_if(visible.begin(), visible.end(), [](const Device& d) { return d.mig_devices > 0; });
  if (seen > 0) {
    chosen->summary = absl::StrCat(Counted(seen, "MIG device"), " of ",
                                   Counted(facts.devices[kNvidia].size(), kVendors[kNvidia].device));
  }
  if (parts > seen) {
    chosen->note =
        "a process sees only one MIG device: for a worker on each, give --virtual-local-rank and their names in "
        "CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them)";
  } else if (found.size() > 1) {
    chosen->note = absl::StrCat("workers see ", absl::StrJoin(found, ", "), ": taking ", chosen->summary,
                                "; give a number if they use others");
  } else {
    chosen->note = facts.note;
  }
  return *std::move(chosen);
}

}  // namespace ddprun::launcher
