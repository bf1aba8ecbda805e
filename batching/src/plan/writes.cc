#include "plan/writes.h"

#include <algorithm>

namespace windrow {

Writes::Cover* Writes::cover_of(const Step& step) {
  if (step.does == Step::Does::scatter || !program_.nodes[step.out.number].is_sum()) return nullptr;
  Cover& cover = covers_[step.out.number];
  cover.columns.resize(static_cast<std::size_t>(program_.nodes[step.out.number].type.width));
  return &cover;
}

void Writes::announce(const Step& step) {
  Cover* cover = cover_of(step);
  if (cover == nullptr) return;
  const auto begin = cover->columns.begin() + step.out.column, end = begin + step.out.width;
  const auto written = std::count(begin, end, 1);
  if (written != 0 && written != step.out.width) cover->clear_first = true;
  std::fill(begin, end, 1);
}

void Writes::all_announced() {
  for (auto& [root, cover] : covers_) {
    cover.clear_first |= std::count(cover.columns.begin(), cover.columns.end(), 0) != 0;
    std::fill(cover.columns.begin(), cover.columns.end(), 0);
  }
}

std::vector<Step> Writes::decide(Step step) {
  Cover* cover = cover_of(step);
  if (cover == nullptr) return {std::move(step)};
  std::vector<Step> steps;
  if (cover->clear_first && !cover->begun) {
    const Index width = program_.nodes[step.out.number].type.width;
    steps.push_back({.does = Step::Does::fill,
                     .node = step.node,
                     .out = {step.out.in, step.out.number, 0, width, step.out.rate},
                     .rate = step.rate});
    std::fill(cover->columns.begin(), cover->columns.end(), 1);
  }
  cover->begun = true;
  const auto begin = cover->columns.begin() + step.out.column, end = begin + step.out.width;
  step.write = std::count(begin, end, 1) != 0 ? Write::add : Write::overwrite;
  std::fill(begin, end, 1);
  steps.push_back(std::move(step));
  return steps;
}

}  // namespace windrow
