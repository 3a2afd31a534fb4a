#include "tests/explorer/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ddprun::testing {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr size_t kHeader = 16;     // header of a block: its class
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

}  // namespace

Arena::Scope::Scope() { ++g_scopes; }
Arena::Scope::~Scope() { --g_scopes; }

void Arena::Clear() {
  if (g_arena == nullptr) {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    g_arena = static_cast<char*>(memory);
  }
  *head() = Head{.used = sizeof(Head)};
}

std::string Arena::Save() { return std::string(g_arena, head()->used); }
void Arena::Restore(const std::string& saved) { std::memcpy(g_arena, saved.data(), saved.size()); }

}  // namespace ddprun::testing

void* operator new(size_t size) { return ddprun::testing::Allocate(size); }
void* operator new[](size_t size) { return ddprun::testing::Allocate(size); }
void operator delete(void* p) noexcept { ddprun::testing::Free(p); }
void operator delete[](void* p) noexcept { ddprun::testing::Free(p); }
void operator delete(void* p, size_t) noexcept { ddprun::testing::Free(p); }
void operator delete[](void* p, size_t) noexcept { ddprun::testing::Free(p); }
