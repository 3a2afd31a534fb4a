// Depth-first search through the states of a world. A state is left and entered again by its memory: while a Scope
// exists, operator new takes memory from the arena, and a copy of the arena's used bytes is a copy of every object in
// it, whatever classes they are of; put back, the pointers are valid again. So nothing copies Registries and
// AgentMachines. For one thread.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/explorer/world.h"

namespace ddprun::testing {
namespace {

// ---- the arena

constexpr size_t kBytes = size_t{64} << 20;
constexpr size_t kHeader = 16;     // begins each block and holds its class
constexpr size_t kGrain = 32;      // blocks are a multiple of this; class c has those of c grains
constexpr size_t kClasses = 1024;  // the largest block is one grain less than so many

// At the start of the arena, so that it is saved and restored with the rest.
struct alignas(kGrain) Head {
  size_t used;
  char* free[kClasses];  // the first free block of each class; it begins with the address of the next one
};

char* g_arena = nullptr;
int g_scopes = 0;

Head* head() { return reinterpret_cast<Head*>(g_arena); }
bool IsInside(const void* p) { return g_arena != nullptr && p >= g_arena && p < g_arena + kBytes; }

void* Allocate(size_t size) {
  if (g_scopes == 0) {
    void* const p = std::malloc(size > 0 ? size : 1);
    if (p == nullptr) std::abort();
    return p;
  }
  const size_t size_class = (std::max<size_t>(size, 1) + kHeader + kGrain - 1) / kGrain;
  if (size_class >= kClasses) std::abort();
  char*& free = head()->free[size_class];
  char* block = free;
  if (block != nullptr) {
    std::memcpy(&free, block + kHeader, sizeof(free));
  } else {
    block = g_arena + head()->used;
    head()->used += size_class * kGrain;
    if (head()->used > kBytes) std::abort();
    std::memcpy(block, &size_class, sizeof(size_class));
  }
  return block + kHeader;
}

void Free(void* p) {
  if (!IsInside(p)) return std::free(p);
  char* const block = static_cast<char*>(p) - kHeader;
  size_t size_class;
  std::memcpy(&size_class, block, sizeof(size_class));
  std::memcpy(p, &head()->free[size_class], sizeof(char*));
  head()->free[size_class] = block;
}

struct Scope {
  Scope() { ++g_scopes; }
  ~Scope() { --g_scopes; }
};

// Frees everything that was allocated in scopes.
void ClearArena() {
  if (g_arena == nullptr) {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    g_arena = static_cast<char*>(memory);
  }
  *head() = Head{.used = sizeof(Head)};
}

std::string SaveArena() { return std::string(g_arena, head()->used); }
void RestoreArena(const std::string& saved) { std::memcpy(g_arena, saved.data(), saved.size()); }

// ---- the search

// A world in the arena.
World* NewWorld(const World::Settings& settings) {
  ClearArena();
  const Scope scope;
  return new World(settings);
}

void Take(World* world, size_t choice) {
  const Scope scope;
  world->Take(choice);
}

// Libraries allocate some things once, which must not lie in the arena.
void WarmUp(const World::Settings& settings) {
  std::mt19937 random(1);
  for (int run = 0; run < 50; ++run) {
    World world(settings);
    for (int step = 0; step < 400; ++step) {
      const size_t choices = world.Choices();
      if (choices == 0) break;
      world.Take(random() % choices);
      world.Digest();
    }
  }
}

class Explorer {
 public:
  explicit Explorer(const World::Settings& settings) : settings_(settings) {}

  Exploration Run(size_t most, bool compare) {
    WarmUp(settings_);
    world_ = NewWorld(settings_);
    Visit(0, 0);
    while (!stack_.empty() && result_.violation.empty() && ids_.size() < most) Step(compare);
    result_.states = ids_.size();
    result_.transitions = edges_.size();
    if (result_.violation.empty() && ids_.size() < most) CheckEnds();
    return std::move(result_);
  }

 private:
  struct Frame {
    uint32_t id;
    std::string memory;
    size_t choices;
    size_t next = 0;
  };
  struct Origin {
    uint32_t from;
    uint32_t choice;
  };

  // The world is in a state that `choice` led to.
  void Visit(uint32_t from, size_t choice) {
    const auto [it, is_new] = ids_.try_emplace(world_->Digest(), static_cast<uint32_t>(ids_.size()));
    const uint32_t id = it->second;
    if (!stack_.empty()) edges_.emplace_back(from, id);
    if (!is_new) return;
    origins_.push_back({from, static_cast<uint32_t>(choice)});
    if (!world_->violation().empty()) return Fail(id, world_->violation());
    if (world_->ended()) ends_.push_back(id);
    Frame frame{id, "", world_->Choices()};
    if (frame.choices > 1) frame.memory = SaveArena();
    stack_.push_back(std::move(frame));
  }

  void Step(bool compare) {
    if (stack_.back().next == stack_.back().choices) return stack_.pop_back();
    Frame& frame = stack_.back();
    if (frame.next > 0) RestoreArena(frame.memory);
    const size_t choice = frame.next++;
    const uint32_t id = frame.id;
    Take(world_, choice);
    if (compare) Compare(id, choice);
    Visit(id, choice);
  }

  // The state's first visit and this one have the same successors.
  void Compare(uint32_t from, size_t choice) {
    const uint64_t digest = world_->Digest();
    const std::string memory = SaveArena();
    uint64_t successors = world_->violation().empty();
    for (size_t next = 0, choices = world_->Choices(); next < choices; ++next) {
      Take(world_, next);
      successors += world_->Digest();  // the order of choices depends on the past
      RestoreArena(memory);
    }
    const auto [it, is_new] = successors_.try_emplace(digest, successors);
    if (is_new || it->second == successors) return;
    std::vector<size_t> way = WayTo(from);
    way.push_back(choice);
    result_.violation = "states of one digest have different successors";
    result_.history = absl::StrCat(Replay(WayTo(ids_.at(digest))), "\n---- the other:\n", Replay(way));
  }

  // Every state has a way to an end.
  void CheckEnds() {
    std::vector<uint32_t> first(ids_.size() + 1), sources(edges_.size());
    for (const auto& [from, to] : edges_) ++first[to];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    for (const auto& [from, to] : edges_) sources[--first[to]] = from;
    std::vector<bool> reached(ids_.size());
    std::vector<uint32_t> open = ends_;
    for (const uint32_t id : open) reached[id] = true;
    while (!open.empty()) {
      const uint32_t to = open.back();
      open.pop_back();
      for (uint32_t i = first[to]; i < first[to + 1]; ++i) {
        if (reached[sources[i]]) continue;
        reached[sources[i]] = true;
        open.push_back(sources[i]);
      }
    }
    result_.ends = ends_.size();
    const auto it = std::find(reached.begin(), reached.end(), false);
    if (it != reached.end()) Fail(static_cast<uint32_t>(it - reached.begin()), "4: some launchers never end");
  }

  void Fail(uint32_t id, std::string violation) {
    result_.violation = std::move(violation);
    result_.history = Replay(WayTo(id));
  }

  std::vector<size_t> WayTo(uint32_t id) const {
    std::vector<size_t> way;
    for (; id != 0; id = origins_[id].from) way.push_back(origins_[id].choice);
    std::reverse(way.begin(), way.end());
    return way;
  }

  std::string Replay(const std::vector<size_t>& way) const {
    World world(settings_);
    world.KeepNotes();
    for (const size_t choice : way) world.Take(choice);
    return world.history();
  }

  const World::Settings settings_;
  World* world_ = nullptr;
  std::vector<Frame> stack_;
  absl::flat_hash_map<uint64_t, uint32_t> ids_;         // keys: digests
  absl::flat_hash_map<uint64_t, uint64_t> successors_;  // keys: digests
  std::vector<Origin> origins_;                         // indexed by id: the first way to the state
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
  std::vector<uint32_t> ends_;
  Exploration result_;
};

}  // namespace

Exploration Explore(const World::Settings& settings, size_t most, bool compare) {
  return Explorer(settings).Run(most, compare);
}

}  // namespace ddprun::testing

void* operator new(size_t size) { return ddprun::testing::Allocate(size); }
void* operator new[](size_t size) { return ddprun::testing::Allocate(size); }
void operator delete(void* p) noexcept { ddprun::testing::Free(p); }
void operator delete[](void* p) noexcept { ddprun::testing::Free(p); }
void operator delete(void* p, size_t) noexcept { ddprun::testing::Free(p); }
void operator delete[](void* p, size_t) noexcept { ddprun::testing::Free(p); }
