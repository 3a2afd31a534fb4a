#include "launcher/process/resolve_program.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/limits.h"
#include "base/status_macros.h"
#include "launcher/io/file_descriptor.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

// Checks whether type and permissions of `file` allow executing it.
absl::Status CheckExecutable(const std::string& file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0) {
    const int error = errno;
    if (error == EACCES) {
      return absl::PermissionDeniedError(
          absl::StrCat("can't run '", file, "': no permission to search a folder of its path"));
    }
    if (error == ENOENT || error == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat("can't run '", file, "': no such file on this host"));
    }
    return absl::FailedPreconditionError(absl::StrCat("can't run '", file, "': ", strerror(error)));
  }
  if (S_ISDIR(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("can't run '", file, "': it is a directory; name the program inside it"));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("can't run '", file, "': it is not a regular file"));
  }
  if (faccessat(AT_FDCWD, file.c_str(), X_OK, AT_EACCESS) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("can't run '", file, "': it is not executable; use chmod +x, or name its interpreter"));
  }
  return absl::OkStatus();
}

// First bytes of a file, empty if it can't be read.
std::string ReadHead(const std::string& file, size_t size) {
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string head(size, '\0');
  const ssize_t got = fd.valid() ? pread(fd.get(), head.data(), head.size(), 0) : 0;
  head.resize(got > 0 ? got : 0);
  return head;
}

// Interpreter of a #! line, ending with '\r' if the file has DOS line ends; empty if there is none.
std::string InterpreterOf(const std::string& head) {
  if (head.compare(0, 2, "#!") != 0) return "";
  const std::string line = head.substr(2, head.find('\n') - 2);
  const size_t start = line.find_first_not_of(" \t");
  if (start == std::string::npos) return "";
  return line.substr(start, line.find_first_of(" \t", start) - start);
}

// Dynamic loader of a 64-bit ELF file; else empty.
std::string LoaderOf(const std::string& file, const std::string& head) {
  Elf64_Ehdr header;
  if (head.size() < sizeof(header)) return "";
  memcpy(&header, head.data(), sizeof(header));
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return "";
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || header.e_phentsize != sizeof(Elf64_Phdr)) return "";
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (pread(fd.get(), &segment, sizeof(segment), header.e_phoff + i * sizeof(segment)) != sizeof(segment)) break;
    if (segment.p_type != PT_INTERP || segment.p_filesz < 2 || segment.p_filesz > 4096) continue;
    std::string loader(segment.p_filesz - 1, '\0');
    if (pread(fd.get(), loader.data(), loader.size(), segment.p_offset) != ssize_t(loader.size())) break;
    return loader;
  }
  return "";
}

// execve reported "no such file" although the file exists: something needed to run it is missing.
absl::Status ExplainMissing(const std::string& program) {
  const std::string head = ReadHead(program, 256);
  const std::string interpreter = InterpreterOf(head);
  if (!interpreter.empty() && interpreter.back() == '\r') {
    return absl::NotFoundError(absl::StrCat("can't run '", program, "': its first line ends with a carriage ",
                                            "return; convert it to Unix line ends (dos2unix)"));
  }
  if (!interpreter.empty()) {
    return absl::NotFoundError(absl::StrCat("can't run '", program, "': the interpreter '", interpreter,
                                            "' of its #! line is not on this host"));
  }
  const std::string loader = LoaderOf(program, head);
  if (!loader.empty()) {
    return absl::NotFoundError(absl::StrCat("can't run '", program, "': the dynamic loader '", loader,
                                            "' that it was linked for is not on this host"));
  }
  return absl::NotFoundError(absl::StrCat("can't run '", program, "': no such file on this host"));
}

absl::Status ExplainFormat(const std::string& program) {
  const std::string head = ReadHead(program, 256);
  std::string reason = "it has no #! line and is not an executable; add a first line like #!/bin/sh";
  if (head.empty()) reason = "the file is empty";
  if (head.compare(0, SELFMAG, ELFMAG) == 0) reason = "it was built for another architecture, or is damaged";
  return absl::FailedPreconditionError(absl::StrCat("can't run '", program, "': ", reason));
}

}  // namespace

std::string SearchPath() {
  const char* path = getenv("PATH");
  return path == nullptr ? "/usr/bin:/bin" : path;
}

absl::StatusOr<std::string> ResolveProgram(absl::string_view name, absl::string_view path) {
  if (name.empty()) return absl::InvalidArgumentError("the name of the program to run is empty");
  if (name.find('/') != absl::string_view::npos) {
    const std::string file(name);
    DDPRUN_RETURN_IF_ERROR(CheckExecutable(file));
    return file;
  }
  // Like execvp: a file without execute permission does not end the search, but is the error if nothing else is found.
  absl::Status blocked;
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = folder.empty() ? absl::StrCat("./", name) : absl::StrCat(folder, "/", name);
    const absl::Status status = CheckExecutable(file);
    if (status.ok()) return file;
    if (blocked.ok() && !absl::IsNotFound(status)) blocked = status;
  }
  if (!blocked.ok()) return blocked;
  std::string hint;
  if (access(std::string(name).c_str(), F_OK) == 0) {
    hint = absl::StrCat("; for the one in the working directory, write ./", name);
  }
  return absl::NotFoundError(absl::StrCat("can't run '", name, "': no such program in PATH", hint));
}

ScriptFile InspectScript(const std::string& file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0) {
    const bool is_name = errno == ENOENT && file.find('/') == std::string::npos;
    return ScriptFile{.in_path = is_name ? ResolveProgram(file, SearchPath()).value_or("") : ""};
  }
  // Reading from a pipe would consume its data.
  if (!S_ISREG(status.st_mode)) return ScriptFile();
  return ScriptFile{ReadHead(file, 256), CheckExecutable(file).ok()};
}

absl::Status ExplainExecError(const std::string& program, int error_number) {
  switch (error_number) {
    case ENOENT:
      if (access(program.c_str(), F_OK) == 0) return ExplainMissing(program);
      return absl::NotFoundError(absl::StrCat("can't run '", program, "': no such file on this host"));
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat("can't run '", program, "': a component of its path is not a directory"));
    case ENOEXEC: return ExplainFormat(program);
    case EACCES:
    case EPERM: {
      DDPRUN_RETURN_IF_ERROR(CheckExecutable(program));
      return absl::PermissionDeniedError(absl::StrCat("can't run '", program,
                                                      "': no permission; is it, or the interpreter of its #! line, ",
                                                      "executable and not on a file system mounted with noexec?"));
    }
    case E2BIG:
      return absl::FailedPreconditionError(
          absl::StrCat("can't run '", program, "': its arguments and environment are longer than this system allows"));
    case EAGAIN:  // execve checks the limit of processes, too
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(absl::StrCat("can't run '", program, "': ", ProcessLimitText(error_number)));
    default: return absl::FailedPreconditionError(absl::StrCat("can't run '", program, "': ", strerror(error_number)));
  }
}

int ExitCodeOfStartError(const absl::Status& status) {
  return absl::IsNotFound(status) ? worker_contract::kExitNotFound : worker_contract::kExitCannotExecute;
}

absl::StatusOr<std::string> CompanionFile(const std::string& name) {
  char executable[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", executable, sizeof executable);
  if (size <= 0) return absl::InvalidArgumentError(absl::StrCat("can't look for ", name, ": no /proc/self/exe"));
  const std::string folder = std::string(executable, size).substr(0, std::string(executable, size).rfind('/'));
  const std::string beside = absl::StrCat(folder, "/", name);
  if (access(beside.c_str(), R_OK) == 0) return beside;
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  const std::string installed = absl::StrCat(prefix, "/lib/", name);
  if (access(installed.c_str(), R_OK) == 0) return installed;
  return absl::InvalidArgumentError(absl::StrCat(beside, " is missing, and so is ", installed));
}

}  // namespace ddprun::launcher
