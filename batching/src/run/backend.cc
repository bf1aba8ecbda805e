#include "windrow/batching/backend.h"

namespace windrow {

std::vector<char> LoweredPlan::needed(const Layout&) const { return std::vector<char>(plan_->tensors.size(), 1); }

std::shared_ptr<const Backend> backend_of(const Device& device) {
  if (device.backend != nullptr) return device.backend;
  return device.on_host() ? host_backend() : interpreter();
}

}  // namespace windrow
