#include "diagnosis/page_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "process/fork.h"
#include "process/immortal.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// The part of a guard that the handler reads. Reused but never freed, since a handler may read it at any time.
struct PageGuard::Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};  ///< `end` is 0 while no guard uses the range
  std::atomic<std::thread::id> shut_by{};        ///< no thread while open
  std::atomic<bool> touched{false};
  Range* next = nullptr;  ///< fixed
};

namespace {

struct Ranges {
  Mutex mutex;
  std::deque<PageGuard::Range> all WINDROW_GUARDED_BY(mutex);
};

std::atomic<PageGuard::Range*> first_range{nullptr};
struct sigaction previous_action;  // written before the handler is installed

bool protect(const PageGuard::Range& range, int protection) {
  const std::uintptr_t begin = range.begin, end = range.end;
  return mprotect(reinterpret_cast<void*>(begin), end - begin, protection) == 0;
}

/// Called in the handler. Opens the guard; returns false if the fault is not at a guard's page, or cannot be handled.
bool mend(std::uintptr_t address) {
  for (PageGuard::Range* range = first_range; range != nullptr; range = range->next) {
    if (address < range->begin || address >= range->end) continue;
    if (range->shut_by.load() == std::this_thread::get_id()) range->touched = true;
    return protect(*range, PROT_READ | PROT_WRITE);
  }
  return false;
}

void hand_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    std::signal(signal, SIG_DFL);  // the fault occurs again, and ends the process
  } else {
    previous_action.sa_handler(signal);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const bool by_protection = info->si_code == SEGV_ACCERR;
  if (!by_protection || !mend(reinterpret_cast<std::uintptr_t>(info->si_addr))) hand_on(signal, info, context);
  errno = saved;
}

void install_handler() {
  // Not std::call_once, which uses variables of threads of the C++ library: see the model of these in CMakeLists.txt. A
  // program that has loaded that library late, such as one in Python, could not load this one.
  [[maybe_unused]] static const bool installed = [] {
    sigaction(SIGSEGV, nullptr, &previous_action);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    return true;
  }();
}

PageGuard::Range& unused_range(Ranges& ranges) WINDROW_REQUIRES(ranges.mutex) {
  for (PageGuard::Range& range : ranges.all) {
    if (range.end == 0) return range;
  }
  PageGuard::Range& range = ranges.all.emplace_back();
  range.next = first_range;
  first_range = &range;
  return range;
}

}  // namespace

bool PageGuard::fits(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return !bytes.empty() && reinterpret_cast<std::uintptr_t>(bytes.data()) % page == 0 && bytes.size() % page == 0;
}

PageGuard::PageGuard(std::span<std::byte> bytes) {
  install_handler();
  Ranges& ranges = immortal<Ranges>();
  MutexLock lock(ranges.mutex);
  range_ = &unused_range(ranges);
  range_->begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  range_->end = range_->begin + bytes.size();
}

PageGuard::~PageGuard() {
  open();
  range_->end = 0;
}

void PageGuard::shut() {
  range_->touched = false;
  range_->shut_by = std::this_thread::get_id();
  protect(*range_, PROT_NONE);
}

bool PageGuard::open() {
  const std::thread::id by = range_->shut_by.exchange({});
  if (by == std::thread::id()) return false;
  protect(*range_, PROT_READ | PROT_WRITE);
  return by == std::this_thread::get_id() && range_->touched;
}

void each_mutex_of_page_guards(EachMutex f) { f(immortal<Ranges>().mutex); }

}  // namespace windrow
