#include "host/needed.h"

#include "host/copies.h"

namespace windrow {
namespace {

class Needed {
 public:
  explicit Needed(const Plan& plan) : needed_(plan.tensors.size(), 0), without_(plan.tensors.size(), 0) {}

  /// Treats the tensor as not needed, whatever note() finds later.
  void do_without(std::size_t tensor) { without_[tensor] = 1; }
  void note(const Place& place) {
    if (place.in == Place::In::tensor && !without(place.number)) needed_[place.number] = 1;
  }
  void note(const std::vector<Place>& places) {
    for (const Place& place : places) note(place);
  }
  void note(const HostPlan::Type& type) {
    for (const auto& segments : type.phases) {
      for (const HostSegment& segment : segments) {
        for (const HostStep& step : segment.steps) {
          note(step.in);
          if (step.direct.op != nullptr && without(step.in[1].number)) note(step.direct.factor);
        }
      }
    }
  }
  bool holds(const Place& place) const { return needed_[place.number] != 0; }
  std::vector<char> take() { return std::move(needed_); }

 private:
  bool without(std::size_t tensor) const { return without_[tensor] != 0; }

  std::vector<char> needed_, without_;
};

}  // namespace

std::vector<char> needed_tensors(const Plan& plan, const HostPlan& lowered, const Layout& layout) {
  Needed needed(plan);
  for (const HostPlan::Copy& copy : lowered.copies) {
    if (!pays(copy, layout)) needed.do_without(copy.tensor);
  }
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    if (layout.types[t].rows == 0) continue;
    needed.note(lowered.types[t]);
    needed.note(plan.types[t].losses);
    needed.note(plan.types[t].pushes);
  }
  for (const TensorStep& one : plan.after) {
    needed.note(one.step.in);
    needed.note(one.step.out);
  }
  for (auto one = plan.before.rbegin(); one != plan.before.rend(); ++one) {
    if (needed.holds(one->step.out)) needed.note(one->step.in);
  }
  return needed.take();
}

}  // namespace windrow
