// The memory of an interpreted minibatch, and where values lie in it.
#include <utility>

#include "windrow/batching/backend/interpretation.h"

namespace windrow {

Interpretation::Interpretation(const Device& device, std::shared_ptr<const Plan> plan, Layout layout,
                               std::vector<Tensor> tensors, Options options)
    : Interpretation(device, std::move(plan), std::move(layout), std::move(tensors), std::move(options), More{}) {}

Interpretation::Interpretation(const Device& device, std::shared_ptr<const Plan> plan, Layout layout,
                               std::vector<Tensor> tensors, Options options, const More& more)
    : Execution(device, std::move(plan), std::move(layout), std::move(tensors), std::move(options)),
      packed_(*plan_, layout_, more.gathers) {
  place_values(more);
  if (more.pack) more.pack({layout_, offsets_, values_, packed_});
  memory_ = std::make_shared<Buffer>(
      device_.engine, device_.memory,
      static_cast<std::size_t>(values_) * sizeof(float) + packed_.words.size() * sizeof(packed_.words[0]),
      OpName("minibatch"), device_.memory_lane());
}

void Interpretation::place_values(const More& more) {
  offsets_.assign(plan_->regions, 0);
  local_offsets_.resize(plan_->types.size());
  const auto line = static_cast<Index>(device_.memory->alignment() / sizeof(float));
  const auto take = [&](Index elements) {
    const Index begin = values_;
    values_ = (values_ + elements + line - 1) / line * line;
    return begin;
  };
  std::vector<char> placed(plan_->regions, 0);
  const auto take_region = [&](std::size_t t, std::size_t number) {
    const TypePlan& type = plan_->types[t];
    if (layout_.types[t].rows == 0 || std::exchange(placed[type.first_region + number], 1) != 0) return;
    offsets_[type.first_region + number] =
        take(layout_.count(t, type.regions[number].rate) * type.regions[number].stride);
  };
  // Losses are neighbours, so that one copy takes them to the host.
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    for (const Place& loss : plan_->types[t].losses) {
      if (loss.in == Place::In::arena) take_region(t, loss.number);
    }
  }
  losses_ = values_;
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const TypePlan& type = plan_->types[t];
    if (layout_.types[t].rows == 0) continue;
    for (std::size_t r = 0; r < type.regions.size(); ++r) take_region(t, r);
    local_offsets_[t].resize(type.locals.size());
    for (std::size_t i = 0; !more.locals.empty() && i < type.locals.size(); ++i) {
      const std::optional<Rate> rate = more.locals[t][i];
      if (rate) local_offsets_[t][i] = take(layout_.count(t, *rate) * device_.row_stride(type.locals[i]));
    }
  }
}

/// Clears the slots that may belong to missing children: no vertex scatters to these.
void Interpretation::clear_missing(Lane* lane) {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const TypePlan& type = plan_->types[t];
    if (layout_.types[t].rows == 0 || !plan_->program.lacks_children(t)) continue;
    for (std::size_t r = type.arenas.size(); r < type.arenas.size() + type.state_regions; ++r) {
      const Index count = layout_.count(t, type.regions[r].rate) * type.regions[r].stride;
      device_.memory->clear(lane, reinterpret_cast<std::byte*>(region(t, r)),
                            static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

std::vector<IntTensor> Interpretation::segments_of(const Plan::Rows& rows) const {
  const PackedLayout::Segments& found = packed_.segments[static_cast<std::size_t>(&rows - plan_->rows.data())];
  const auto at = [&](std::size_t word) { return values_ + static_cast<Index>(word); };
  return {IntTensor(memory_, found.count, 3, at(found.bounds)), IntTensor(memory_, found.length, 1, at(found.order))};
}

Matrix<float> Interpretation::place(const Place& place, const At& at) const {
  const TypePlan& plan = plan_->types[at.type];
  const Range rows = place.rate == at.rate ? at.rows : Range{0, layout_.count(at.type, place.rate)};
  if (place.in == Place::In::local) {
    const Index stride = device_.row_stride(plan.locals[place.number]);
    return {data_ + local_offsets_[at.type][place.number] + rows.begin * stride + place.column, rows.end - rows.begin,
            place.width, stride};
  }
  std::size_t number = place.number;  // of the region; arenas come first
  if (place.in == Place::In::state) number = plan.states[number].region;
  if (place.in == Place::In::state_gradient) number = plan.gradients[number].region;
  const Index stride = plan.regions[number].stride;
  return {region(at.type, number) + rows.begin * stride + place.column, rows.end - rows.begin, place.width, stride};
}

Matrix<const float> Interpretation::operand(const Place& from, const At& at) const {
  if (from.in == Place::In::tensor) {
    const Matrix<const float> whole = tensors_[from.number].view().read(at.lane);
    return {whole.data + from.column, whole.rows, from.width, whole.stride};
  }
  if (from.in == Place::In::pull) {
    const Index width = layout_.types[at.type].values[from.number].width;
    const Range rows = from.rate == at.rate ? at.rows : Range{0, layout_.count(at.type, from.rate)};
    const auto* const column = reinterpret_cast<const float*>(word(packed_.values[at.type][from.number]));
    return {column + rows.begin * width + from.column, rows.end - rows.begin, from.width, width};
  }
  return place(from, at);
}

}  // namespace windrow
