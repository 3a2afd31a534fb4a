#include "launcher/hosts/remote_start.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxReasonBytes = 300;
constexpr int kSshFailed = 255;
constexpr int kCopyFailed = 97;  // exit code of the command below
constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxFrameBytes = 64 << 20;

// Removes old files from the cache in the background: copies of the program that no keeper and no start has touched for
// 30 days, folders of jobs after 90 days, tokens after a year.
constexpr char kTidy[] =
    "(cd \"${XDG_CACHE_HOME:-$HOME/.cache}/ddprun\" && "
    "find . -maxdepth 1 -type d -name \"[0-9]*-????????????????\" -mtime +30 -exec rm -rf {} + ; "
    "find jobs -mindepth 2 -maxdepth 2 -type d -mtime +90 -exec rm -rf {} + ; "
    "find jobs -mindepth 2 -maxdepth 2 -type f -name \"token-*\" -mtime +365 -exec rm -f {} + ; "
    "find jobs -mindepth 1 -maxdepth 1 -type d -empty -mtime +1 -exec rmdir {} + ) </dev/null >/dev/null 2>&1 &";

// For /bin/sh on any system. One line without single quotes, '!' and backslashes, which login shells treat in different
// ways. A file appears under its name only when it is complete, so that several hosts may share the folder; after a
// crash of the host it may be empty. The program runs with the umask of the login session.
constexpr char kScript[] =
    "m=$(umask); umask 077; echo DDPRUN on $(uname -s) $(uname -m); "
    "f=\"${XDG_CACHE_HOME:-$HOME/.cache}/ddprun/DIGEST\"; touch -c \"$f\" 2>/dev/null; TIDY "
    "for n in FILES; do b=${n#*:}; n=${n%%:*}; "
    "test -f \"$f/$n\" && test $(wc -c <\"$f/$n\") -eq $b && continue; "
    "mkdir -p \"$f\" || exit 97; t=\"$f/.$$\"; echo DDPRUN send $n; "
    "head -c $b >\"$t\" && test $(wc -c <\"$t\") -eq $b && chmod 700 \"$t\" && mv -f \"$t\" \"$f/$n\" || "
    "{ rm -f \"$t\"; exit 97; }; done; "
    "umask $m; echo DDPRUN run; exec \"$f/ddprun\" AGENT";

// The last line that says something, as ssh and the shell write theirs.
std::string LastLine(absl::string_view text) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    // ssh ends with "Connection to b closed", which says less than a line before it.
    if (stripped.empty() || (!last.empty() && absl::StartsWith(stripped, "Connection to "))) continue;
    last = OneLine(stripped, kMaxReasonBytes);
  }
  return last;
}

// "(publickey,password)" of "me@b: Permission denied (publickey,password)."
absl::string_view Methods(absl::string_view text) {
  const size_t begin = text.find("Permission denied (");
  if (begin == absl::string_view::npos) return "";
  text.remove_prefix(begin + sizeof("Permission denied ") - 1);
  return text.substr(0, text.find(')') + 1);
}

std::string ExplainConnection(absl::string_view text, absl::string_view host) {
  const std::string last = LastLine(text);
  if (absl::StrContains(text, "REMOTE HOST IDENTIFICATION HAS CHANGED")) {
    return absl::StrCat("its host key has changed: if the host was reinstalled, run `ssh-keygen -R ", host,
                        "`, then `ssh ", host, "` once");
  }
  if (absl::StrContains(text, "Host key verification failed")) {
    return absl::StrCat("its host key is not known here: run `ssh ", host, "` once and accept it");
  }
  if (absl::StrContains(text, "Could not resolve hostname")) {
    return absl::StrCat("no such host: ", last, "; correct --hosts, or give it a Host entry in ~/.ssh/config");
  }
  if (const absl::string_view methods = Methods(text); !methods.empty()) {
    return absl::StrCat("ssh was not let in ", methods, ": `ssh ", host,
                        " true` must work without a password (ssh-copy-id ", host, ", or an agent with the key)");
  }
  if (absl::StrContains(text, "Connection refused")) {
    return absl::StrCat("nothing answers to ssh there: ", last, "; start its sshd, or set Port in ~/.ssh/config");
  }
  if (absl::StrContains(text, "timed out") || absl::StrContains(text, "No route to host") ||
      absl::StrContains(text, "Network is unreachable")) {
    return absl::StrCat("ssh can't reach it: ", last, "; is it down, or is there a firewall?");
  }
  return last.empty() ? "ssh ended without a message" : absl::StrCat("ssh: ", last);
}

std::string ExplainExecution(int exit_code, absl::string_view text) {
  const std::string last = LastLine(text);
  if (absl::StrContains(text, "GLIBC_") || absl::StrContains(text, "GLIBCXX_")) {
    return absl::StrCat("its C library is too old for this program (", last,
                        "): start the job with the ddprun of the wheel, which needs glibc 2.28");
  }
  if (absl::StrContains(text, "error while loading shared libraries")) {
    return absl::StrCat("it lacks a library of this program (", last,
                        "): start the job with the ddprun of the wheel, which needs the C library only");
  }
  if (absl::StrContains(text, "Exec format error")) {
    return "this program is not for its processors: start the job from a host of the same architecture";
  }
  if (absl::StrContains(text, "Permission denied")) {
    return absl::StrCat("programs may not run in its cache folder (", last,
                        "): set XDG_CACHE_HOME there to a folder without noexec");
  }
  if (exit_code == 127 && absl::StrContains(text, "not found")) {
    return absl::StrCat("it can't run this program (", last,
                        "): it has no glibc, or another architecture; start the job with the ddprun of the wheel");
  }
  return absl::StrCat("the program ended at once with code ", exit_code, last.empty() ? "" : ": ", last);
}

}  // namespace

std::vector<std::string> SshArguments(const std::string& host, const std::string& digest,
                                      const std::vector<ProgramFile>& files) {
  std::string names;
  for (const ProgramFile& file : files) absl::StrAppend(&names, names.empty() ? "" : " ", file.name, ":", file.bytes);
  const std::string script =
      absl::StrReplaceAll(kScript, {{"TIDY", kTidy}, {"DIGEST", digest}, {"FILES", names}, {"AGENT", kAgentArgument}});
  return {"ssh",
          "-T",
          "-oBatchMode=yes",  // no questions: several hosts would ask at once
          "-oConnectTimeout=15",
          "-oServerAliveInterval=5",
          "-oServerAliveCountMax=4",
          "--",
          host,
          absl::StrCat("exec /bin/sh -c '", script, "'")};
}

std::string ExplainSshEnd(StartStage stage, int exit_code, absl::string_view stderr_text, absl::string_view host) {
  const std::string last = LastLine(stderr_text);
  if (stage == StartStage::kConnecting && exit_code != kSshFailed) {
    return absl::StrCat("its login shell ended with code ", exit_code, last.empty() ? "" : ": ", last);
  }
  if (stage == StartStage::kConnecting) return ExplainConnection(stderr_text, host);
  if (exit_code == kCopyFailed) {
    return absl::StrCat("the program could not be copied to its ~/.cache/ddprun: ", last.empty() ? "no reason" : last);
  }
  if (stage == StartStage::kExecuting && exit_code != kSshFailed) return ExplainExecution(exit_code, stderr_text);
  return absl::StrCat("its ssh connection was lost", last.empty() ? "" : ": ", last);
}

void AppendFrame(const google::protobuf::MessageLite& message, std::string* bytes) {
  const size_t size = message.ByteSizeLong();
  for (int shift = 24; shift >= 0; shift -= 8) bytes->push_back(static_cast<char>(size >> shift));
  message.AppendToString(bytes);
}

bool TakeFrame(std::string* bytes, google::protobuf::MessageLite* message, bool* error) {
  size_t size = 0;
  for (size_t i = 0; i < kLengthBytes && bytes->size() >= kLengthBytes; ++i) {
    size = size << 8 | static_cast<uint8_t>((*bytes)[i]);
  }
  if (size > kMaxFrameBytes) *error = true;
  if (*error || bytes->size() < kLengthBytes + size) return false;
  *error = !message->ParseFromArray(bytes->data() + kLengthBytes, static_cast<int>(size));
  bytes->erase(0, kLengthBytes + size);
  return !*error;
}

}  // namespace ddprun::launcher
