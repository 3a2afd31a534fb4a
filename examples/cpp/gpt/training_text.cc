#include "examples/cpp/gpt/training_text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gpt {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->is_regular_file(error) && !entry->is_symlink(error)) files.push_back(entry->path());
    }
    std::sort(files.begin(), files.end());
  } else if (fs::exists(path, error)) {
    files.push_back(path);
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no text at ", path, ": give a file or a folder with --text"));
  }
  std::string text;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(stream), {});
    if (!stream) return absl::UnavailableError(absl::StrCat("the text ", file.string(), " can't be read"));
  }
  return text;
}

}  // namespace gpt
