// How calls end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "windrow/comm/member.h"

namespace windrow::comm {

/// Ends a part with a CommError that names its call.
void fail(Exchange& part, const std::string& why);

/// Computes a call, whose parts of these ranks are there, where the tensors lie; and ends the parts. The call fails at
/// all of them if they do not fit each other, or if an operand has failed.
void finish(std::vector<Exchange>& parts, const std::vector<int>& ranks);

/// "10 s" or "1500 ms", for errors.
std::string seconds(std::chrono::nanoseconds time);

}  // namespace windrow::comm
