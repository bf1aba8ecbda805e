// Whether a thread computes with denormal numbers, which make kernels up to 200 times slower.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>

namespace windrow {

/// What floating point instructions of a thread do with numbers nearer to zero than the smallest normal one: 1.2e-38
/// for float, 2.2e-308 for double.
enum class Denormals {
  keep,   ///< compute with them, as IEEE 754 says
  flush,  ///< take them as zeros, as operands and as results
};

/// Sets the mode of the calling thread until the scope ends; then the thread has its previous mode again. Must end on
/// the thread that began it. Costs some cycles where the thread has the mode already. Does nothing on processors other
/// than x86-64 and ARM64.
class DenormalsScope {
 public:
  explicit DenormalsScope(Denormals mode) : before_(read()) {
    const Word wanted = mode == Denormals::flush ? before_ | flushing : before_ & ~flushing;
    changed_ = wanted != before_;
    if (changed_) [[unlikely]]
      write(wanted);
  }
  ~DenormalsScope() {
    if (changed_) [[unlikely]]
      write(before_);
  }
  DenormalsScope(const DenormalsScope&) = delete;
  DenormalsScope& operator=(const DenormalsScope&) = delete;

  /// The mode of the calling thread.
  static Denormals mode() { return (read() & flushing) != 0 ? Denormals::flush : Denormals::keep; }
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
  bool changed_;
};

}  // namespace windrow
