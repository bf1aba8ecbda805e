#include "execute/transposed.h"

#include <algorithm>
#include <map>
#include <utility>

#include "windrow/ops/operators.h"

namespace windrow {
namespace {

/// Whether the place covers all columns of a tensor.
bool whole(const Plan& plan, const Place& place) {
  return place.in == Place::In::tensor && place.column == 0 && place.width == plan.tensors[place.number].width;
}

/// The source of each transposed copy, by number of the copy.
std::map<std::size_t, Place> transposed(const Plan& plan) {
  std::map<std::size_t, Place> from;
  for (const TensorStep& one : plan.before) {
    const Step& step = one.step;
    if (step.does != Step::Does::kernel || !plan.program.at(step.node).is(op::transpose)) continue;
    if (step.write == Write::overwrite && whole(plan, step.out)) from[step.out.number] = step.in[0];
  }
  for (const auto* list : {&plan.before, &plan.after}) {
    for (const TensorStep& one : *list) {
      for (const Place& place : one.step.in) {
        if (place.in == Place::In::tensor) from.erase(place.number);
      }
    }
  }
  return from;
}

template <class Visit>
void each_user(Plan& plan, Visit visit) {
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    for (std::size_t phase = 0; phase < phase_count; ++phase) {
      for (Segment& segment : plan.types[t].phases[phase]) {
        for (Step& step : segment.steps) visit(step, Plan::Copy::User{t, static_cast<Phase>(phase), step.rate});
      }
    }
  }
}

/// Whether the copy costs less time than it saves in the products. On the host, products of up to `very_few` rows are
/// as fast without the copy. Products of up to `few` rows are somewhat slower without it; `in_all` such rows lose as
/// much time as the copy takes. With more rows, oneDNN copies operands itself, and products without the copy are slow.
/// The bounds are rough, and follow those of `multiply()` in host/product.cc; `windrow-perf train --model tree-lstm
/// --batch 1` is sensitive to them.
bool pays(const Plan::Copy& copy, const Layout& layout) {
  constexpr Index very_few = 16, few = 32, in_all = 128;
  Index all = 0;
  const auto too_many = [&](Index rows) {
    if (rows > very_few) all += rows;
    return rows > few || all > in_all;
  };
  for (const Plan::Copy::User& user : copy.users) {
    const bool scheduled = user.phase == Phase::level || user.phase == Phase::back_level;
    for (Index g = 0; g < layout.groups; ++g) {
      const Index begin = layout.begin(user.type, g), end = layout.begin(user.type, g + 1);
      if (begin == end) continue;
      if (!scheduled) {
        if (too_many(layout.count(user.type, user.rate, begin, end))) return true;
        continue;
      }
      for (const Layout::BatchRows& batch : layout.batches[static_cast<std::size_t>(g)]) {
        if (batch.type == user.type && too_many(layout.count(user.type, user.rate, batch.begin, batch.end)))
          return true;
      }
    }
  }
  return false;
}

}  // namespace

void find_copies(Plan& plan, const KernelTable<float>& kernels) {
  std::map<std::size_t, Place> from = transposed(plan);
  const auto multiplies = [&](const Step& step, std::size_t k) {
    return k == 1 && step.does == Step::Does::kernel && plan.program.at(step.node).is(op::matmul) &&
           whole(plan, step.in[1]);
  };
  each_user(plan, [&](Step& step, const Plan::Copy::User&) {
    for (std::size_t k = 0; k < step.in.size(); ++k) {
      if (step.in[k].in == Place::In::tensor && !multiplies(step, k)) from.erase(step.in[k].number);
    }
  });
  std::map<std::size_t, Plan::Copy> copies;
  each_user(plan, [&](Step& step, const Plan::Copy::User& user) {
    if (step.in.size() != 2 || step.in[1].in != Place::In::tensor) return;
    const auto found = from.find(step.in[1].number);
    if (found == from.end()) return;
    step.without_copy = {&op::matmul_nt, kernels.find(op::matmul_nt), found->second};
    Plan::Copy& copy = copies[found->first];
    copy.tensor = found->first;
    copy.users.push_back(user);
    std::vector<std::size_t>& read = plan.types[user.type].tensors[static_cast<std::size_t>(user.phase)];
    const auto at = std::ranges::lower_bound(read, found->second.number);
    if (at == read.end() || *at != found->second.number) read.insert(at, found->second.number);
  });
  for (auto& [tensor, copy] : copies) plan.copies.push_back(std::move(copy));
}

Plan without_copies(Plan plan, const KernelTable<float>& kernels) {
  find_copies(plan, kernels);
  each_user(plan, [](Step& step, const Plan::Copy::User&) {
    const Step::WithoutCopy other = std::exchange(step.without_copy, {});
    if (other.op == nullptr) return;
    step.op = other.op;
    step.kernel = other.kernel;
    step.in[1] = other.factor;
  });
  for (const Plan::Copy& copy : std::exchange(plan.copies, {})) {
    plan.tensors[copy.tensor].rows = 0;
    std::erase_if(plan.before, [&](const TensorStep& one) { return one.step.out.number == copy.tensor; });
  }
  return plan;
}

std::vector<char> needed_tensors(const Plan& plan, const Layout& layout) {
  std::vector<char> needed(plan.tensors.size(), 0), without(plan.tensors.size(), 0);
  for (const Plan::Copy& copy : plan.copies) without[copy.tensor] = pays(copy, layout) ? 0 : 1;
  const auto note = [&](const Place& place) {
    if (place.in == Place::In::tensor && without[place.number] == 0) needed[place.number] = 1;
  };
  const auto note_all = [&](const std::vector<Place>& places) { std::ranges::for_each(places, note); };
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    if (layout.types[t].rows == 0) continue;
    const TypePlan& type = plan.types[t];
    each_step(type, [&](const Step& step) {
      note_all(step.in);
      if (step.without_copy.op != nullptr && without[step.in[1].number] != 0) note(step.without_copy.factor);
    });
    note_all(type.losses);
    note_all(type.pushes);
  }
  for (const TensorStep& one : plan.after) {
    note_all(one.step.in);
    note(one.step.out);
  }
  for (auto one = plan.before.rbegin(); one != plan.before.rend(); ++one) {
    if (needed[one->step.out.number] != 0) note_all(one->step.in);
  }
  return needed;
}

}  // namespace windrow
