#include "tests/engine/faults.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <string_view>

namespace windrow::testing::faults {
namespace {

// Written while nothing is armed.
Plan plan_now;
std::atomic<bool> armed{false};
std::atomic<std::uint64_t> counted{0};
std::atomic<bool> has_struck{false};
std::atomic<std::int64_t> live{0}, calls{0}, asked_bytes{0};
std::atomic<int> threads_allowed{std::numeric_limits<int>::max()};

constinit thread_local int shelters = 0;
constinit thread_local bool chosen = false;

bool strikes() {
  if (!armed.load(std::memory_order_acquire) || shelters > 0) return false;
  if (plan_now.where == Where::this_thread && !chosen) return false;
  const std::uint64_t number = ++counted;
  const bool fails = plan_now.lasts == Lasts::once ? number == plan_now.at : number >= plan_now.at;
  if (fails) has_struck = true;
  return fails;
}

/// Where oneDNN lies in memory, some versions of which allocate in each product. Empty until asked() is called.
std::atomic<std::uintptr_t> onednn_begin{0}, onednn_end{0};

int find_onednn(dl_phdr_info* library, std::size_t, void*) {
  if (std::string_view(library->dlpi_name).find("libdnnl") == std::string_view::npos) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    onednn_begin = library->dlpi_addr + segment.p_vaddr;
    onednn_end = onednn_begin + segment.p_memsz;
  }
  return 1;
}

bool is_of_onednn(const void* code) {
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  return address >= onednn_begin && address < onednn_end;
}

void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) noexcept {
  if (!is_of_onednn(caller)) {
    ++calls;
    asked_bytes += static_cast<std::int64_t>(bytes);
  }
  if (strikes()) return nullptr;
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes == 0 ? 1 : bytes);
  } else if (posix_memalign(&memory, alignment, bytes) != 0) {
    memory = nullptr;
  }
  live += memory != nullptr;
  return memory;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment, const void* caller) {
  if (void* memory = allocate(bytes, alignment, caller)) return memory;
  throw std::bad_alloc();
}

[[maybe_unused]] bool may_map(std::size_t bytes) noexcept {  // see mmap()
  ++calls;
  asked_bytes += static_cast<std::int64_t>(bytes);
  return !strikes();
}

void release(void* memory) noexcept {
  live -= memory != nullptr;
  std::free(memory);
}

}  // namespace

Armed::Armed(const Plan& plan) {
  plan_now = plan;
  counted = 0;
  has_struck = false;
  chosen = true;
  armed.store(true, std::memory_order_release);
}
Armed::~Armed() {
  armed = false;
  chosen = false;
}

bool struck() { return has_struck; }

Sheltered::Sheltered() { ++shelters; }
Sheltered::~Sheltered() { --shelters; }

Exposed::Exposed() : sheltered_(shelters) { shelters = 0; }
Exposed::~Exposed() { shelters = sheltered_; }

Asked asked() {
  [[maybe_unused]] static const int found = dl_iterate_phdr(find_onednn, nullptr);
  return {calls, asked_bytes};
}

std::int64_t live_blocks() { return live; }

ThreadsRefused::ThreadsRefused(int but) { threads_allowed = but; }
ThreadsRefused::~ThreadsRefused() { threads_allowed = std::numeric_limits<int>::max(); }

}  // namespace windrow::testing::faults

namespace faults = windrow::testing::faults;

void* operator new(std::size_t bytes) { return faults::allocate_or_throw(bytes, 1, __builtin_return_address(0)); }
void* operator new[](std::size_t bytes) { return faults::allocate_or_throw(bytes, 1, __builtin_return_address(0)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return faults::allocate_or_throw(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return faults::allocate_or_throw(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return faults::allocate(bytes, 1, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return faults::allocate(bytes, 1, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return faults::allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return faults::allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { faults::release(memory); }
void operator delete[](void* memory) noexcept { faults::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { faults::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { faults::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { faults::release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { faults::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { faults::release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { faults::release(memory); }

/// As HostAllocator maps large pieces. Smaller ones belong to libraries. ThreadSanitizer maps memory before it can
/// run instrumented code, and it has to see what is mapped.
#if !defined(__SANITIZE_THREAD__)
extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (address == nullptr && file == -1 && protection == (PROT_READ | PROT_WRITE) && bytes >= std::size_t{1} << 20) {
    if (!faults::may_map(bytes)) {
      errno = ENOMEM;
      return MAP_FAILED;
    }
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
#endif

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (faults::threads_allowed.fetch_sub(1) <= 0) {
    ++faults::threads_allowed;
    return EAGAIN;
  }
  return next(thread, attributes, start, argument);
}
