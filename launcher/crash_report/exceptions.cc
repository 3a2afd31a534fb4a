// Parts of libstdc++ that `catch` needs in answers.cc. This library does not link libstdc++, but a process that throws
// a C++ exception has it. The functions are looked up there when one was thrown, and are visible in this library only.
#include <dlfcn.h>
#include <stdint.h>

__asm__(".hidden __gxx_personality_v0, __cxa_begin_catch, __cxa_end_catch, _Unwind_Resume");

namespace {

template <typename Function>
Function* InThrowingLibrary(const char* name) {
  void* const library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* const function = dlsym(library, name);
  dlclose(library);
  return reinterpret_cast<Function*>(function);
}

}  // namespace

extern "C" {
int __gxx_personality_v0(int version, int actions, uint64_t kind, void* exception, void* context) {
  return InThrowingLibrary<int(int, int, uint64_t, void*, void*)>("__gxx_personality_v0")(version, actions, kind,
                                                                                          exception, context);
}
void* __cxa_begin_catch(void* exception) noexcept {
  return InThrowingLibrary<void*(void*)>("__cxa_begin_catch")(exception);
}
void __cxa_end_catch() { InThrowingLibrary<void()>("__cxa_end_catch")(); }
void _Unwind_Resume(void* exception) {
  InThrowingLibrary<void(void*)>("_Unwind_Resume")(exception);
  __builtin_unreachable();
}
}
