// Whether a thread computes with denormal numbers, which make kernels up to 200 times slower.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>

namespace windrow {

/// How floating point instructions of a thread treat numbers closer to zero than the smallest normal number: 1.2e-38
/// for float, 2.2e-308 for double. The values have all or no bits set, for a direct comparison with the register.
enum class Denormals : std::uint32_t {
  keep = 0,     ///< compute with them, as IEEE 754 says
  flush = ~0u,  ///< treat them as zeros, as operands and as results
};

/// Sets the mode of the calling thread until the scope ends; then the thread has its previous mode again. Must end on
/// the thread that began it. Costs some cycles if the thread already has the mode. Does nothing on processors other
/// than x86-64 and ARM64.
class DenormalsScope {
 public:
  explicit DenormalsScope(Denormals mode) : before_(read()), changed_(!is_in(mode)) {
    if (changed_) [[unlikely]]
      set(mode);
  }
  ~DenormalsScope() {
    if (changed_) [[unlikely]]
      write(before_);
  }
  DenormalsScope(const DenormalsScope&) = delete;
  DenormalsScope& operator=(const DenormalsScope&) = delete;

  /// The mode of the calling thread.
  static Denormals mode() { return (read() & flushing) != 0 ? Denormals::flush : Denormals::keep; }
  /// Whether a scope with this mode would change nothing.
  static bool is_in(Denormals mode) { return ((read() ^ static_cast<Word>(mode)) & flushing) == 0; }
  /// Whether threads can flush denormal numbers: false on other processors, and under some emulators.
  static bool can_flush() {
    const DenormalsScope scope(Denormals::flush);
    return flushing != 0 && is_in(Denormals::flush);
  }
  /// Sets the mode of the calling thread for good.
  static void set(Denormals mode) {
    const Word before = read();
    write(mode == Denormals::flush ? before | flushing : before & ~flushing);
  }

 private:
#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word flushing = 0x8040;  // flush to zero, denormals are zero
  static Word read() { return __builtin_ia32_stmxcsr(); }
  static void write(Word word) { __builtin_ia32_ldmxcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word flushing = Word{1} << 24;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = std::uint32_t;
  static constexpr Word flushing = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif

  const Word before_;
  const bool changed_;
};

}  // namespace windrow
