#include "launcher/fork_server/environment_changes.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::launcher {
namespace {

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::vector<std::string> EnvironmentChanges(absl::Span<const std::string> from, absl::Span<const std::string> to) {
  std::vector<std::string> changes;
  const absl::flat_hash_set<absl::string_view> old_entries(from.begin(), from.end());
  absl::flat_hash_set<absl::string_view> names;
  for (const std::string& entry : to) {
    names.insert(NameOf(entry));
    if (!old_entries.contains(entry)) changes.push_back(entry);
  }
  for (const std::string& entry : from) {
    if (!names.contains(NameOf(entry))) changes.emplace_back(NameOf(entry));
  }
  return changes;
}

}  // namespace ddprun::launcher
