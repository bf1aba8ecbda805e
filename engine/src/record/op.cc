#include "record/op.h"

#include <algorithm>
#include <new>

#include "graph/launch.h"

namespace windrow {

// The accesses lie behind the record, and the body behind them. These sizes align both for any type.
static_assert(sizeof(OpRecord) == 48 && sizeof(Dep::Access) == 32);
static_assert(alignof(std::max_align_t) == 16 && alignof(AsyncBody) <= 16);
static_assert(sizeof(VarState) == 128);
// Distances between variables are counted in this size, to which VarState is aligned.
static_assert(sizeof(Dep::Var) == 64);

std::string site(const OpInfo& info) {
  return "op '" + std::string(info.name) + "' (pushed at " + info.pushed_at.file_name() + ":" +
         std::to_string(info.pushed_at.line()) + ")";
}

std::string name_of(std::string_view name, std::int32_t index) {
  return index < 0 ? std::string(name) : std::string(name) + "[" + std::to_string(index) + "]";
}

std::string name_of(const VarState& var) { return name_of(var.name.load(), var.index); }

std::string list_of(std::vector<std::pair<std::string_view, std::int32_t>>&& values, std::string_view quote) {
  std::ranges::sort(values);  // accesses are in the order of memory
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, values.size()); ++i) {
    text.append(i == 0 ? "" : ", ").append(quote).append(name_of(values[i].first, values[i].second)).append(quote);
  }
  return values.size() <= most ? text : text + " and " + std::to_string(values.size() - most) + " more";
}

std::string changes_of(OpRecord& op) noexcept try {
  std::vector<std::pair<std::string_view, std::int32_t>> values;
  for (const Dep::Access& access : op.touches()) {
    const VarState& var = var_of(access);
    const bool changes = access.exclusive() || access.commutes();
    if (changes && var.index != VarName::no_value) values.emplace_back(var.name.load(), var.index);
  }
  return list_of(std::move(values), "'");
} catch (const std::bad_alloc&) {
  return {};
}

const VarState* find_retired(std::span<const Dep::Access> accesses, Dep::Joiners joiners) {
  for (const Dep::Access& access : accesses) {
    // Skips a variable in a later life, whose name would mislead.
    VarState& var = var_of(access);
    if (Dep::generation(var, joiners) == access.generation() + 1) return &var;
  }
  return nullptr;
}

void refuse_retired(const OpInfo& op, const VarState* var) {
  const std::string what = var == nullptr ? "a variable" : "variable '" + name_of(*var) + "'";
  throw MisuseError(site(op) + " names " + what + ", which was retired");
}

VarPlace place_of(OpRecord& op, std::size_t access) {
  if (op.body() == OpRecord::Body::node) {
    const NodePlace& node = op.node();
    return node.launch->place(*node.node, access);
  }
  return place_of(op.accesses()[access]);
}

void OpRecord::end_other_body() noexcept {
  switch (body_) {
    case Body::none:
    case Body::function:
    case Body::gate:
    case Body::fence:
      break;
    case Body::node:
      return;
    case Body::async:
      std::destroy_at(&at<AsyncBody>());
      break;
    case Body::wait:
      std::destroy_at(&at<std::shared_ptr<Waiter>>());
      break;
    case Body::captures:
      std::destroy_at(&at<Kept>());
      break;
  }
  body_ = Body::none;
}

void OpRecord::abandon_body() noexcept {
  const auto abandon = [](auto& function) { function.abandon(); };
  if (body_ == Body::captures) std::visit(abandon, kept().captures);
  if (body_ == Body::function || body_ == Body::async) {
    Captures captures = take_captures();
    std::visit(abandon, captures);
  }
  end_body();
}

bool OpRecord::is_async_node() { return node().node->op->kind == Body::async; }

AsyncBody& OpRecord::async_of_node() { return node().launch->async(node().node->number); }

std::span<Dep::Access> OpRecord::touches_of_node() { return node().node->op->accesses; }

bool OpRecord::node_ends_variable_for_good() { return node().node->op->retires == CapturedOp::Retires::foreign; }

bool OpRecord::node_ends_variable() { return node().node->op->retires != CapturedOp::Retires::nothing; }

}  // namespace windrow
