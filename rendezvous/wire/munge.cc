#include "rendezvous/wire/munge.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

// Payload of every credential, so that credentials made for other services are refused.
constexpr absl::string_view kPurpose = "ddprun-rendezvous";
constexpr size_t kMaxCredentialBytes = 4096;
constexpr size_t kMaxRequests = 16'384;
constexpr size_t kMaxErrorBytes = 256;

// The functions of munge.h that are used. They are declared here so that the build needs no libmunge; their interface
// has not changed since the first libmunge.so.2 (2007).
struct Library {
  static constexpr int kSuccess = 0;         // EMUNGE_SUCCESS
  static constexpr int kSocketError = 6;     // EMUNGE_SOCKET: munged does not answer
  static constexpr int kTimeout = 7;         // EMUNGE_TIMEOUT
  static constexpr int kOptSocket = 8;       // MUNGE_OPT_SOCKET
  static constexpr int kOptUserAllowed = 9;  // MUNGE_OPT_UID_RESTRICTION

  void* (*ctx_create)();
  void (*ctx_destroy)(void* ctx);
  int (*ctx_get)(void* ctx, int option, ...);
  int (*ctx_set)(void* ctx, int option, ...);
  int (*encode)(char** credential, void* ctx, const void* payload, int length);
  int (*decode)(const char* credential, void* ctx, void** payload, int* length, uid_t* uid, gid_t* gid);
  const char* (*error_text)(int code);

  // Returns nullopt if the library is not installed. It is never unloaded.
  static std::optional<Library> Load() {
    void* const handle = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return std::nullopt;
    Library library;
    const auto find = [handle](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
      return *function != nullptr;
    };
    const bool complete = find("munge_ctx_create", &library.ctx_create) &&
                          find("munge_ctx_destroy", &library.ctx_destroy) && find("munge_ctx_get", &library.ctx_get) &&
                          find("munge_ctx_set", &library.ctx_set) && find("munge_encode", &library.encode) &&
                          find("munge_decode", &library.decode) && find("munge_strerror", &library.error_text);
    return complete ? std::optional(library) : std::nullopt;
  }
};

struct Decoded {
  uid_t user = 0;
  std::string payload;
};

// One request to munged, which may take seconds.
class Conversation {
 public:
  Conversation(const Library& library, const std::string& socket) : library_(library), ctx_(library.ctx_create()) {
    if (!socket.empty()) library_.ctx_set(ctx_, Library::kOptSocket, socket.c_str());
  }
  ~Conversation() { library_.ctx_destroy(ctx_); }

  // Returns the path of munged's socket if there is no such file.
  std::optional<std::string> MissingSocket() const {
    const char* socket = nullptr;
    library_.ctx_get(ctx_, Library::kOptSocket, &socket);
    if (socket == nullptr || access(socket, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) return std::nullopt;
    return socket;
  }

  absl::StatusOr<std::string> Encode(std::optional<uid_t> allowed) {
    if (allowed) library_.ctx_set(ctx_, Library::kOptUserAllowed, *allowed);
    char* credential = nullptr;
    const int code = library_.encode(&credential, ctx_, kPurpose.data(), static_cast<int>(kPurpose.size()));
    const std::string text = credential == nullptr ? "" : credential;
    free(credential);
    if (code != Library::kSuccess) return ErrorOf(code);
    return text;
  }

  absl::StatusOr<Decoded> Decode(const std::string& credential) {
    void* payload = nullptr;
    int length = 0;
    Decoded decoded;
    gid_t group;
    const int code = library_.decode(credential.c_str(), ctx_, &payload, &length, &decoded.user, &group);
    if (payload != nullptr && length > 0) decoded.payload.assign(static_cast<char*>(payload), length);
    free(payload);
    if (code != Library::kSuccess) return ErrorOf(code);
    return decoded;
  }

 private:
  absl::Status ErrorOf(int code) const {
    const std::string text = OneLine(library_.error_text(code), kMaxErrorBytes);
    const bool unavailable = code == Library::kSocketError || code == Library::kTimeout;
    return unavailable ? absl::UnavailableError(text) : absl::UnauthenticatedError(text);
  }

  const Library& library_;
  void* const ctx_;
};

// Requests to munged, which block. Thread-compatible.
class Munged {
 public:
  explicit Munged(const std::string& socket) : socket_(socket) {}

  absl::StatusOr<std::string> Encode() {
    DDPRUN_RETURN_IF_ERROR(LearnUser());
    return Conversation(*library_, socket_).Encode(user_);
  }

  absl::Status Verify(const std::string& credential) {
    DDPRUN_RETURN_IF_ERROR(LearnUser());
    if (credential.size() > kMaxCredentialBytes) return absl::UnauthenticatedError("the MUNGE credential is too long");
    const absl::StatusOr<Decoded> decoded = Conversation(*library_, socket_).Decode(credential);
    if (absl::IsUnavailable(decoded.status())) return decoded.status();
    if (!decoded.ok()) {
      return absl::UnauthenticatedError(
          absl::StrCat("the MUNGE credential is not valid: ", decoded.status().message()));
    }
    if (decoded->user != *user_) return absl::PermissionDeniedError("the MUNGE credential is from another user");
    if (decoded->payload != kPurpose) return absl::UnauthenticatedError("the MUNGE credential is not for ddprun");
    return absl::OkStatus();
  }

 private:
  // Sets this process's user as munged sees it, which differs from getuid() in a user namespace. Fails with
  // FAILED_PRECONDITION if this host has no munge; a munged that does not answer may be restarting: UNAVAILABLE.
  absl::Status LearnUser() {
    if (user_) return absl::OkStatus();
    if (!library_) library_ = Library::Load();
    if (!library_) return absl::FailedPreconditionError("libmunge.so.2 is not installed");
    if (const std::optional<std::string> socket = Conversation(*library_, socket_).MissingSocket()) {
      return absl::FailedPreconditionError(absl::StrCat("there is no ", *socket));
    }
    const absl::StatusOr<std::string> own = Conversation(*library_, socket_).Encode(std::nullopt);
    if (!own.ok()) return absl::UnavailableError(own.status().message());
    const absl::StatusOr<Decoded> decoded = Conversation(*library_, socket_).Decode(*own);
    if (!decoded.ok()) return absl::UnavailableError(decoded.status().message());
    user_ = decoded->user;
    return absl::OkStatus();
  }

  const std::string socket_;
  std::optional<Library> library_;
  std::optional<uid_t> user_;
};

}  // namespace

// Shared with a detached thread, because a request to munged can't be cancelled and may outlast this process's exit.
class Munge::Thread : public std::enable_shared_from_this<Munge::Thread> {
 public:
  using Answer = absl::StatusOr<std::string>;
  struct Request {
    std::function<Answer(Munged*)> ask;
    std::function<void(Answer)> done;
  };

  explicit Thread(const std::string& socket) : munged_(socket) {}

  void Add(Request request) {
    absl::Status refused;
    {
      MutexLock lock(&mutex_);
      if (stopped_) {
        refused = Stopped();
      } else if (requests_.size() >= kMaxRequests) {
        refused = absl::ResourceExhaustedError("too many requests wait for munge");
      } else {
        requests_.push_back(std::move(request));
        if (!std::exchange(started_, true)) {
          std::thread([self = shared_from_this()] { self->Run(); }).detach();
        }
        more_.NotifyAll();
        return;
      }
    }
    request.done(refused);
  }

  void Stop() {
    std::deque<Request> requests;
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      more_.NotifyAll();
      while (calling_) called_.Wait(&mutex_);
      requests.swap(requests_);
    }
    for (const Request& request : requests) request.done(Stopped());
  }

 private:
  static absl::Status Stopped() { return absl::CancelledError("shutting down"); }

  void Run() {
    while (true) {
      std::function<Answer(Munged*)> ask;
      {
        MutexLock lock(&mutex_);
        while (requests_.empty() && !stopped_) more_.Wait(&mutex_);
        if (stopped_) return;
        ask = requests_.front().ask;
      }
      Answer answer = ask(&munged_);
      std::function<void(Answer)> done;
      {
        MutexLock lock(&mutex_);
        if (stopped_) return;
        done = std::move(requests_.front().done);
        requests_.pop_front();
        calling_ = true;
      }
      std::exchange(done, nullptr)(std::move(answer));
      MutexLock lock(&mutex_);
      calling_ = false;
      called_.NotifyAll();
    }
  }

  Munged munged_;  // used on the thread only
  Mutex mutex_;
  CondVar more_;
  CondVar called_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;          // a callback runs on the thread
  std::deque<Request> requests_ ABSL_GUARDED_BY(mutex_);  // the first one is in progress
};

Munge::Munge(const std::string& socket) : thread_(std::make_shared<Thread>(socket)) {}

Munge::~Munge() { Stop(); }

void Munge::Encode(EncodeDone done) {
  thread_->Add({[](Munged* munged) { return munged->Encode(); }, std::move(done)});
}

void Munge::Verify(const std::string& credential, VerifyDone done) {
  thread_->Add({[credential](Munged* munged) -> absl::StatusOr<std::string> {
                  DDPRUN_RETURN_IF_ERROR(munged->Verify(credential));
                  return "";
                },
                [done = std::move(done)](absl::StatusOr<std::string> answer) { done(std::move(answer).status()); }});
}

void Munge::Stop() { thread_->Stop(); }

}  // namespace ddprun::rendezvous
