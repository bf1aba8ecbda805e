// A span in which a thread may make records and enter them.
#pragma once

#include "core.h"

namespace windrow {

/// No code of users runs in it, but for the move constructors of functions.
///
/// While one thread alone enters records, variables need no lock bits: its port's bit is enough, by which the second
/// thread that comes stops it to make both take them.
class Core::Entry {
 public:
  explicit Entry(Core& core) : Entry(core, core.ports_.mine()) {}
  /// The port is the calling thread's.
  Entry(Core& core, Port& port) : port_(port) {
    if (port_.entering) throw MisuseError("a push by the move constructor of a function that is being pushed");
    if (core.lone_.load(std::memory_order_relaxed) != &port_) core.join_others(port_);
    port_.entry.lock();
    port_.entering = true;
    joiners_ = core.several_.load(std::memory_order_acquire) ? Dep::Joiners::many : Dep::Joiners::one;
  }
  ~Entry() {
    port_.entering = false;
    port_.entry.unlock();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  Port& port() const { return port_; }
  Dep::Joiners joiners() const { return joiners_; }

 private:
  Port& port_;
  Dep::Joiners joiners_;
};

}  // namespace windrow
