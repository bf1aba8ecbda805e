// A std::stop_token as PushOptions take it.
#pragma once

#include <stop_token>

namespace windrow {

/// A view of a token, or of none, for parameters only: it must not outlive the call it is passed to. So options stay
/// plain bytes, and whoever asks for no stop pays for none.
class StopView {
 public:
  StopView() = default;
  StopView(const std::stop_token& token) : token_(&token) {}
  explicit operator bool() const { return token_ != nullptr; }
  /// A copy that may be kept.
  std::stop_token token() const { return token_ == nullptr ? std::stop_token() : *token_; }

 private:
  const std::stop_token* token_ = nullptr;
};

}  // namespace windrow
