#include "tests/worker_runtime/parity/settings.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_split.h"

namespace ddprun::testing {

Settings::Settings(const std::string& line) {
  for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
    values_.insert(pair);
  }
}

std::string Settings::Text(const std::string& key, const std::string& otherwise) const {
  const auto found = values_.find(key);
  return found == values_.end() ? otherwise : found->second;
}

int Settings::Number(const std::string& key, int otherwise) const {
  return Has(key) ? std::atoi(values_.at(key).c_str()) : otherwise;
}

double Settings::Real(const std::string& key, double otherwise) const {
  return Has(key) ? std::atof(values_.at(key).c_str()) : otherwise;
}

bool Settings::RunsWith(int world_size) const {
  for (absl::string_view size : absl::StrSplit(Text("ws", ""), ',')) {
    if (size == std::to_string(world_size)) return true;
  }
  return false;
}

std::vector<Settings> ReadSettings(const std::string& path) {
  std::vector<Settings> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') all.emplace_back(line);
  }
  return all;
}

}  // namespace ddprun::testing
