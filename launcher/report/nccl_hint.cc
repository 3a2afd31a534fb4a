#include "launcher/report/nccl_hint.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

// NCCL's messages when it has no interface or reaches no peer over TCP, and when a verbs call or a transfer fails.
constexpr absl::string_view kSocketErrors[] = {"no socket interface", "socketStartConnect", "socketPollConnect",
                                               "NET/Socket"};
constexpr absl::string_view kInfinibandErrors[] = {"NET/IB", "ibv_"};

template <size_t n>
bool HasAny(absl::string_view text, const absl::string_view (&words)[n]) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](absl::string_view word) { return absl::StrContains(text, word); });
}

}  // namespace

std::string NcclHint(const rendezvous::WorkerFailure& failure, absl::string_view interface) {
  const std::string text = absl::StrCat(failure.message(), "\n", failure.traceback());
  if (!absl::StrContains(text, "NCCL") && !absl::StrContains(text, "nccl")) return "";
  constexpr absl::string_view kDebug = "; NCCL_DEBUG=INFO shows what NCCL chose";
  if (HasAny(text, kInfinibandErrors)) {
    return absl::StrCat(
        "NCCL failed on InfiniBand or RoCE: name the adapters that reach all nodes with NCCL_IB_HCA "
        "(for RoCE also NCCL_IB_GID_INDEX), or set NCCL_IB_DISABLE=1 to use TCP",
        kDebug);
  }
  if (HasAny(text, kSocketErrors)) {
    return absl::StrCat(
        "NCCL could not connect over TCP: set NCCL_SOCKET_IFNAME to the interface that reaches all nodes",
        interface.empty() ? "" : absl::StrCat(" (here the launchers use ", interface, ")"), kDebug);
  }
  return "";
}

}  // namespace ddprun::launcher
