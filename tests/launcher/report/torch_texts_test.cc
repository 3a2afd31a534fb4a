// The table of texts by which the launcher recognizes a victim of another rank's failure, compared with the texts of
// the installed PyTorch, so that a new version's are noticed.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/report/first_cause.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

// A library's text with one of these parts, in lower case, may be about a lost peer.
constexpr absl::string_view kKinds[] = {
    "abort failed",
    "aborted",
    "aborting",
    "broken pipe",
    "closed by",
    "closed the",
    "commabort",
    "communicator not",
    "connect timeout",
    "connection abort",
    "connection broken",
    "connection closed",
    "connection lost",
    "connection refused",
    "connection reset",
    "connection was",
    "disconnected",
    "failed to recv",
    "failed to send",
    "lost connection",
    "operation timeout",
    "pair closure",
    "read timeout",
    "recvvalue",
    "remote process",
    "revoke",
    "sendbytes",
    "socket closed",
    "socket timeout",
    "taking the entire",
    "timed out",
    "timeout after",
    "timeout at",
    "timeout in",
    "timeout wait",
    "timeout wh",
    "unexpectedly closed",
    "unreachable",
    "wait timeout",
    "watchdog caught",
    "watchdog got",
    "watchdog hang",
    "watchdog thread terminated",
    "write timeout",
};

// Texts of that kind that show no victim: other subjects, errors of the rank itself, and lines that precede or follow
// one of the table's. In lower case, between ^ and $.
constexpr absl::string_view kExceptions[] = {
    "aborting all communicators",
    "aborting execution",
    "aborting intranodecomm::rendezvous",
    "aborting ncclcomm_",
    "aborting otherwise",
    "aborted due to user requested higher-priority",
    "before aborting",
    "before commrevoke",
    "cannot allocate memory, aborted",
    "could not open file",
    "disableprofiler timed out",
    "failed to recv ondemand config",
    "failed to send config type",
    "failed to send fd",
    "failed to send rpc to clear dist autograd",
    "failed to send/recv registering",
    "flush timed out",
    "host is unreachable",
    "network is unreachable",
    "operation timed out after",
    "peer disconnected",
    "pending ownerrrefs",
    "pending userrrefs",
    "producer disconnected",
    "processgroupnccl watchdog hang",
    "processgroupnccl's watchdog got stuck",
    "rref creation via rpc.remote() timed out",
    "server socket on {} has timed out, will retry",
    "^ timed out after $",
    "timed out conneclistener",
    "timeout watchdog caught",
    "timeout while waiting for acks",
    "verify there is indeed a watchdog hang",
    "watchdog caught exception",
    "watchdog thread terminated",
    "; aborting the nccl communicator",
};

struct Libraries {
  int minor = 0;  // PyTorch 2.minor
  std::vector<fs::path> files;
};

// The libraries of PyTorch and NCCL in this virtual environment; no files without PyTorch.
Libraries FindLibraries(const fs::path& venv) {
  Libraries libraries;
  std::error_code error;
  for (const auto& version : fs::directory_iterator(venv / "lib", error)) {
    const fs::path packages = version.path() / "site-packages";
    for (const char* folder : {"torch/lib", "nvidia/nccl/lib"}) {
      for (const auto& file : fs::directory_iterator(packages / folder, error)) {
        const std::string name = file.path().filename();
        const bool is_texts = absl::StartsWith(name, "libtorch_") || absl::StartsWith(name, "libnccl.");
        if (is_texts && absl::StrContains(name, ".so")) libraries.files.push_back(file.path());
      }
    }
    const std::string text = testing::ReadFile(packages / "torch/version.py");
    const size_t at = text.find("__version__ = '2.");
    if (at == std::string::npos) continue;
    const std::vector<std::string> numbers = absl::StrSplit(text.substr(at, 40), absl::ByAnyChar(".'"));
    EXPECT_TRUE(absl::SimpleAtoi(numbers[2], &libraries.minor)) << text;
  }
  return libraries;
}

// Calls `use` with each zero-terminated text of the constants of a 64-bit ELF file.
template <typename Use>
void ForEachText(const fs::path& file, Use use) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0) << file;
  const size_t size = fs::file_size(file);
  const char* const bytes = static_cast<const char*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0));
  close(fd);
  ASSERT_NE(bytes, MAP_FAILED) << file;
  Elf64_Ehdr header;
  memcpy(&header, bytes, sizeof header);
  const auto section = [&](int i) {
    Elf64_Shdr result;
    memcpy(&result, bytes + header.e_shoff + i * sizeof result, sizeof result);
    return result;
  };
  const size_t names = section(header.e_shstrndx).sh_offset;
  for (int i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr constants = section(i);
    if (!absl::StartsWith(bytes + names + constants.sh_name, ".rodata")) continue;
    absl::string_view rest(bytes + constants.sh_offset, constants.sh_size);
    while (!rest.empty()) {
      const absl::string_view text = rest.substr(0, rest.find('\0'));
      use(text);
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    }
  }
  munmap(const_cast<char*>(bytes), size);
}

bool HasOne(absl::string_view text, absl::Span<const absl::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](absl::string_view word) { return absl::StrContains(text, word); });
}

// A message may be put together from several constants: "failed: " and "timeout".
absl::string_view FirstPart(absl::string_view text) { return text.substr(0, text.find(": ")); }

TEST(TorchTextsTest, TableAndLibraries_Agree) {
  const Libraries libraries = FindLibraries(fs::path(testing::VenvPython()).parent_path().parent_path());
  if (libraries.files.empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  std::set<absl::string_view> missing;
  for (const PeerError& error : PeerErrors()) {
    if (error.since >= 0 && error.since <= libraries.minor) missing.insert(error.text);
  }
  std::set<std::string> unknown;
  for (const fs::path& file : libraries.files) {
    const std::string name = file.filename();
    const bool is_torch = name == "libtorch_cpu.so" || name == "libtorch_cuda.so" || name == "libtorch_python.so";
    ForEachText(file, [&](absl::string_view bytes) {
      if (bytes.size() < 6 || bytes.size() > 300) return;  // longer: documentation
      const std::string text = absl::AsciiStrToLower(bytes);
      std::erase_if(missing, [&](absl::string_view words) { return absl::StrContains(text, FirstPart(words)); });
      const bool is_sentence = absl::StrContains(text, ' ') && text.find('\n') >= text.size() - 1 &&
                               std::all_of(text.begin(), text.end(), absl::ascii_isascii);
      if (!is_torch || !is_sentence || !HasOne(text, kKinds) || HasOne(absl::StrCat("^", text, "$"), kExceptions)) {
        return;
      }
      const auto has = [&](const PeerError& error) { return absl::StrContains(text, error.text); };
      if (std::none_of(PeerErrors().begin(), PeerErrors().end(), has)) unknown.insert(text);
    });
  }
  for (const absl::string_view text : missing) ADD_FAILURE() << "no library of PyTorch has this text: " << text;
  for (const std::string& text : unknown) {
    ADD_FAILURE() << "add this text to the table of launcher/report/first_cause.cc, or here as an exception: " << text;
  }
}

}  // namespace
}  // namespace ddprun::launcher
