#include "launcher/crash_report/audit_hook.h"

#include <stddef.h>
#include <string.h>

#include "launcher/crash_report/find_symbol.h"

namespace ddprun::launcher {
namespace {

// Python's PyMemAllocatorEx.
struct Allocator {
  void* context;
  void* (*allocate)(void* context, size_t size);
  void* (*allocate_zeros)(void* context, size_t count, size_t size);
  void* (*resize)(void* context, void* memory, size_t size);
  void (*release)(void* context, void* memory);
};
constexpr int kRaw = 0;  // PYMEM_DOMAIN_RAW

// Python frees its hook when it ends, with the allocator that it uses then. That of its development mode and of
// PYTHONMALLOC=debug can't free what was allocated before Python started, and the process would crash. So the hook is
// freed by the allocator that it came from.
void (*get_allocator)(int domain, Allocator* allocator) = nullptr;
void (*set_allocator)(int domain, Allocator* allocator) = nullptr;
Allocator before_start;
Allocator at_end;
void* hook_memory = nullptr;

void* AllocateHook(void* context, size_t size) { return hook_memory = before_start.allocate(context, size); }

void Release(void* context, void* memory) {
  if (memory == nullptr || memory != hook_memory) return at_end.release(context, memory);
  hook_memory = nullptr;
  before_start.release(before_start.context, memory);
}

int OnAuditEvent(const char* event, void* arguments, void* hook) {
  if (strcmp(event, "cpython._PySys_ClearAuditHooks") == 0 && at_end.release == nullptr) {
    get_allocator(kRaw, &at_end);
    Allocator releasing = at_end;
    releasing.release = Release;
    if (at_end.release != before_start.release) set_allocator(kRaw, &releasing);
  }
  return reinterpret_cast<AuditHook>(hook)(event, arguments);
}

}  // namespace

bool AddAuditHook(AuditHook hook) {
  int (*add_hook)(int (*)(const char*, void*, void*), void*);
  if (!FindSymbol("PySys_AddAuditHook", &add_hook) || !FindSymbol("PyMem_GetAllocator", &get_allocator) ||
      !FindSymbol("PyMem_SetAllocator", &set_allocator)) {
    return false;
  }
  get_allocator(kRaw, &before_start);
  Allocator remembering = before_start;
  remembering.allocate = AllocateHook;
  set_allocator(kRaw, &remembering);
  const int error = add_hook(OnAuditEvent, reinterpret_cast<void*>(hook));
  set_allocator(kRaw, &before_start);
  return error == 0;
}

}  // namespace ddprun::launcher
