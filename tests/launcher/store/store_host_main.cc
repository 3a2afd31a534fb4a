// Hosts a store for tests in other languages. Prints "PORT <n>", then executes commands from stdin until it ends, each
// answered with one line on stdout:
//   begin ROUND WORLD                        ok
//   register ROUND BASE HOST PID...    ok, or the error
//   missing                                  RANK:LOCAL_RANK:HOST:PID ...
//   joined                                   number of ranks that have joined
//   waiting                                  RANK:ON_RANK ... (-: unknown)
//   used                                     bytes of memory that the store counts
//   until COMMAND = ANSWER                   ok, as soon as one of the last four commands would give that answer
#include <sys/epoll.h>
#include <unistd.h>

#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/io/event_loop.h"
#include "launcher/store/store_server.h"

namespace ddprun::launcher {
namespace {

std::string RankText(const std::optional<int>& rank) { return rank.has_value() ? absl::StrCat(*rank) : "-"; }

std::string Obey(const std::string& line, StoreServer& store) {
  std::istringstream in(line);
  std::string command;
  in >> command;
  if (command == "begin") {
    uint64_t round = 0;
    int world = 0;
    in >> round >> world;
    store.BeginRound(round, world);
    return "ok";
  }
  if (command == "register") {
    NodeRegistration node;
    in >> node.round >> node.base_rank >> node.host;
    for (uint32_t pid; in >> pid;) node.pids.push_back(pid);
    const absl::Status status = store.RegisterLocal(node);
    return status.ok() ? "ok" : std::string(status.message());
  }
  if (command == "joined") return absl::StrCat(store.Joined());
  if (command == "used") return absl::StrCat(store.used_bytes());
  std::vector<std::string> items;
  if (command == "missing") {
    for (const MissingRank& rank : store.Missing()) {
      items.push_back(absl::StrCat(rank.rank, ":", RankText(rank.local_rank), ":", rank.host, ":", rank.pid));
    }
  } else if (command == "waiting") {
    for (const WaitingClient& client : store.Waiting()) {
      items.push_back(absl::StrCat(RankText(client.rank), ":", RankText(client.on_rank)));
    }
  }
  return absl::StrJoin(items, " ");
}

int Main() {
  auto loop = EventLoop::Create();
  auto store = StoreServer::Open({.address = ""});
  if (!loop.ok() || !store.ok()) {
    std::cerr << "store_host: " << loop.status() << " " << store.status() << std::endl;
    return 1;
  }
  std::string input;
  std::vector<std::string> until;  // command and answer
  const auto check_until = [&] {
    if (until.empty() || Obey(until[0], **store) != until[1]) return;
    until.clear();
    std::cout << "ok" << std::endl;
  };
  const auto on_input = [&](uint32_t) {
    char bytes[4096];
    const ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
    if (size <= 0) return (*loop)->Quit();
    input.append(bytes, static_cast<size_t>(size));
    for (size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
      absl::string_view line = absl::string_view(input).substr(0, end);
      if (absl::ConsumePrefix(&line, "until ")) {
        until = absl::StrSplit(line, absl::MaxSplits(" = ", 1));
      } else {
        std::cout << Obey(std::string(line), **store) << std::endl;
      }
    }
    check_until();
  };
  const auto on_store = [&](uint32_t) {
    (*store)->ProcessReady();
    check_until();
  };
  if (!(*loop)->AddFd(STDIN_FILENO, EPOLLIN, on_input).ok()) return 1;
  if (!(*loop)->AddFd((*store)->PollFd(), EPOLLIN, on_store).ok()) return 1;
  std::cout << "PORT " << (*store)->port() << std::endl;
  (*loop)->Run();
  (*loop)->RemoveFd((*store)->PollFd());
  return 0;
}

}  // namespace
}  // namespace ddprun::launcher

int main() { return ddprun::launcher::Main(); }
