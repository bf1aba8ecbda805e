// The history of a lazy graph: what it has learned about batching, as numbers. Operators are named, since their
// addresses change from process to process; parameters, cells and functions of parameters are numbered, as in keys.
//
// Everything is checked as it is read, since the numbers may come from a damaged or a foreign file.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "lazy/epochs.h"
#include "lazy/record.h"
#include "schedule/schedule_lessons.h"

namespace windrow::lazy {
namespace {

/// The first number of a history. A later version that writes anything else increments it.
constexpr std::int64_t version = 4;

enum class KeyIs : std::int64_t { input, operation, sum, result, end };
/// The number of a cell of Record::own_cell(), which is named by the widths of its elements.
constexpr std::int64_t number_of_own(OwnCell which) { return -1 - static_cast<std::int64_t>(which); }
enum class RowsAre : std::int64_t { vertices, edges, counted, end };

void write(const Operator& op, NumberWriter& to, const KernelTable<float>& operators) {
  const std::string_view name = op.name.text();
  if (operators.named(name) != &op) {
    throw MisuseError("history: operator '" + std::string(name) +
                      "' is not the one of its name in the device's kernel table; expected it there");
  }
  to.add_text(name);
}

const Operator& read_operator(NumberReader& from, const KernelTable<float>& operators) {
  const std::string name = from.text();
  const Operator* const op = operators.named(name);
  if (op == nullptr) {
    throw MisuseError("a history with operator '" + name + "', which has no kernel; expected one that has");
  }
  return *op;
}

void write(const Attributes& attributes, NumberWriter& to) {
  const RowsAre rows = attributes.rows.counted()          ? RowsAre::counted
                       : attributes.rows == Rows::edges() ? RowsAre::edges
                                                          : RowsAre::vertices;
  to.add(static_cast<std::int64_t>(rows));
  if (rows == RowsAre::counted) to.add(attributes.rows.number());
  for (const Index size : attributes.sizes) to.add(size);
  for (const double value : attributes.values) to.add(std::bit_cast<std::int64_t>(value));
}

/// infer() checks them.
Attributes read_attributes(NumberReader& from, const Operator& op) {
  Attributes attributes{.made_by = op.attributes};
  const auto rows = static_cast<RowsAre>(from.next(0, static_cast<std::int64_t>(RowsAre::end)));
  if (rows == RowsAre::counted) attributes.rows = Rows::count(from.next());
  if (rows == RowsAre::edges) attributes.rows = Rows::edges();
  for (Index& size : attributes.sizes) size = from.next();
  for (double& value : attributes.values) value = std::bit_cast<double>(from.next());
  return attributes;
}

}  // namespace

// A key, or a function of parameters.

void Record::write(const Key& key, NumberWriter& to) const {
  const KeyIs is = key.op == nullptr        ? KeyIs::input
                   : key.cell != nullptr    ? KeyIs::result
                   : key.op == &sum_of_many ? KeyIs::sum
                                            : KeyIs::operation;
  to.add(static_cast<std::int64_t>(is));
  if (is == KeyIs::input) return to.add(key.attributes.sizes[0]);
  if (is == KeyIs::result) {
    const auto cell = std::ranges::find(cells_, key.cell, [](const auto& one) { return one.get(); });
    to.add(key.cell->own ? number_of_own(*key.cell->own) : cell - cells_.begin());
    key.cell->own ? to.add_list(key.cell->each) : to.add_text(key.cell->name);
    to.add(key.attributes.sizes[0]);
    std::int64_t missing = 0;
    for (std::size_t k = 0; k < key.operands.size(); ++k) {
      if (key.operands[k] == Key::missing) missing |= std::int64_t{1} << k;
    }
    return to.add(missing);
  }
  if (is == KeyIs::operation) lazy::write(*key.op, to, epochs_->operators());
  lazy::write(key.attributes, to);
  to.add_list(key.operands);
  to.add_list(key.widths);
  to.add_list(key.index_widths);
}

const Cell& Record::read_cell(NumberReader& from) {
  const std::int64_t number = from.next(number_of_own(OwnCell::end) + 1, INT32_MAX);
  if (number < 0) {
    const auto which = static_cast<OwnCell>(-1 - number);
    const auto each = from.list<Index>();
    const auto fits = [](Index width) { return 0 <= width && width <= INT32_MAX; };
    const bool masked = which == OwnCell::attention && each.size() == 3 && each[2] == 1;
    const bool two = each.size() == 2 && (which == OwnCell::attention || each[1] == 1);
    if ((!two && !masked) || !std::ranges::all_of(each, fits)) from.refuse();
    return own_cell(which, each);
  }
  const std::string name = from.text();
  const auto known = static_cast<std::int64_t>(cells_.size());
  if (number >= known || cells_[static_cast<std::size_t>(number)]->name != name) {
    throw MisuseError("a history with cell '" + name + "'; expected a graph that has made the same cells");
  }
  return *cells_[static_cast<std::size_t>(number)];
}

Key Record::read_key(NumberReader& from) {
  const auto is = static_cast<KeyIs>(from.next(0, static_cast<std::int64_t>(KeyIs::end)));
  if (is == KeyIs::input) return {.attributes = {.made_by = "input", .sizes = {from.next(0, INT32_MAX), 0}}};
  if (is == KeyIs::result) {
    const Cell& cell = read_cell(from);
    const auto result = static_cast<std::size_t>(from.next(0, static_cast<std::int64_t>(cell.results.size())));
    const std::int64_t missing = from.next(0, std::int64_t{1} << cell.operands.size());
    return key_of(cell, static_cast<std::uint32_t>(missing), result);
  }
  Key key{.op = is == KeyIs::sum ? &sum_of_many : &read_operator(from, epochs_->operators())};
  key.attributes = read_attributes(from, *key.op);
  for (std::size_t left = from.count(); left > 0; --left) {
    key.operands.push_back(static_cast<std::int32_t>(from.next(Key::expression, INT32_MAX)));
    if (key.operands.back() != Key::expression && !weights_.has(key.operands.back(), *parameters_)) from.refuse();
  }
  for (std::size_t left = from.count(); left > 0; --left) key.widths.push_back(from.next(0, INT32_MAX));
  for (std::size_t left = from.count(); left > 0; --left) key.index_widths.push_back(from.next(1, 16));
  const auto expressions = std::ranges::count(key.operands, Key::expression);
  if (expressions != static_cast<std::ptrdiff_t>(key.widths.size()) || expressions > 31) from.refuse();
  return key;
}

void Weights::write(NumberWriter& to, const KernelTable<float>& operators) const {
  to.add(static_cast<std::int64_t>(made_.size()));
  for (const Made& made : made_) {
    lazy::write(*made.op, to, operators);
    lazy::write(made.attributes, to);
    to.add_list(made.in);
  }
}

void Weights::read(NumberReader& from, const KernelTable<float>& operators, const ParameterStores& parameters) {
  for (std::size_t left = from.count(); left > 0; --left) {
    const Operator& op = read_operator(from, operators);
    Made made{&op, read_attributes(from, op), {}, {Rows::count(0), 0}};
    Signature signature{.attributes = made.attributes};
    for (std::size_t operands = from.count(); operands > 0; --operands) {
      made.in.push_back(static_cast<std::int32_t>(from.next(0, INT32_MAX)));
      if (!has(made.in.back(), parameters)) from.refuse();
      signature.in.push_back(type_of(made.in.back(), parameters));
    }
    made.type = inferred(op, signature);
    made_.push_back(std::move(made));
  }
}

// The whole.

std::vector<std::int64_t> Record::history() const {
  if (size() > 0) throw MisuseError("history() while expressions are recorded; expected it after clear()");
  NumberWriter to;
  to.add(version);
  to.add(age());
  weights_.write(to, epochs_->operators());
  to.add(static_cast<std::int64_t>(keys_.size()));
  for (std::uint32_t key = 0; key < keys_.size(); ++key) write(keys_[key], to);
  list_places_.write(to);
  epochs_->write(to);
  return to.take();
}

void Record::set_history(std::span<const std::int64_t> history) {
  if (size() > 0 || keys_.size() > 0) {
    throw MisuseError("set_history() of a lazy graph that has recorded expressions; expected a new one");
  }
  NumberReader from(history);
  try {
    if (const std::int64_t given = from.next(); given != version) {
      throw MisuseError("a history of version " + std::to_string(given) + "; expected " + std::to_string(version));
    }
    const auto minibatch = static_cast<std::uint32_t>(from.next(0, UINT32_MAX));
    weights_.read(from, epochs_->operators(), *parameters_);
    const std::size_t keys = from.count();
    for (std::uint32_t number = 0; number < keys; ++number) {
      const Key key = read_key(from);
      const auto inferred = [&] {
        if (key.cell == nullptr) return infer(key);
        return Inferred{key.cell->results[static_cast<std::size_t>(key.attributes.sizes[0])]};
      };
      if (keys_.number(key, inferred) != number) from.refuse();
    }
    read_list_places(from);
    epochs_->read(from, minibatch);
    from.end();
    minibatch_ = minibatch;
  } catch (...) {
    epochs_->begin_anew();
    throw;
  }
}

void Epochs::write(NumberWriter& to) const {
  runs_.write(to);
  kinds_.write(to);
  // A runner of other kinds is replaced before it computes again, and only the lessons go on.
  const bool current = runner_ && version_ == kinds_.version();
  to.add(current ? 2 : lessons_ ? 1 : 0);
  if (current) {
    to.add_list(runner_->history());
  } else if (lessons_) {
    lessons_->write(to);
  }
}

void Epochs::read(NumberReader& from, std::uint32_t minibatch) {
  runs_.read(from, minibatch);
  kinds_.read(from, minibatch);
  const std::int64_t has = from.next(0, 3);
  if (has == 2) {
    make_runner();
    runner_->set_history(from.list<std::int64_t>());
  } else if (has == 1) {
    const auto lessons = std::make_shared<ScheduleLessons>();
    lessons->read(from);
    lessons_ = lessons;
  }
}

void Epochs::begin_anew() {
  forget();
  lessons_ = nullptr;
}

// Patterns of runs.

void LastUse::read(NumberReader& from, std::size_t size, std::uint32_t minibatch) {
  last_.clear();
  for (std::size_t left = from.count(); left > 0; --left) {
    last_.push_back(static_cast<std::uint32_t>(from.next(0, std::int64_t{minibatch} + 1)));
  }
  if (last_.size() > size) from.refuse();
}

void Lists::write(NumberWriter& to) const {
  to.add(static_cast<std::int64_t>(size()));
  for (std::uint32_t list = 0; list < size(); ++list) to.add_list((*this)[list]);
}

void Lists::read(NumberReader& from) {
  const std::size_t lists = from.count();
  for (std::uint32_t list = 0; list < lists; ++list) {
    std::vector<std::uint32_t> elements;
    for (std::size_t left = from.count(); left > 0; --left) {
      elements.push_back(static_cast<std::uint32_t>(from.next(0, UINT32_MAX)));
    }
    if (elements.empty() || find_or_add(elements) != list) from.refuse();
  }
}

void Runs::write(NumberWriter& to) const {
  patterns_.write(to);
  used_.write(to);
  to.add_list(std::set<Pair>(together_.begin(), together_.end()));
  to.add(static_cast<std::int64_t>(divided_.size()));
  for (const auto& [pattern, node] : divided_) {
    to.add(pattern);
    to.add(node);
  }
}

void Runs::read(NumberReader& from, std::uint32_t minibatch) {
  patterns_.read(from);
  for (std::uint32_t pattern = 0; pattern < patterns_.size(); ++pattern) {
    if (!is_pattern(patterns_[pattern])) from.refuse();
  }
  used_.read(from, patterns_.size(), minibatch);
  for (std::size_t left = from.count(); left > 0; --left) {
    const auto both = static_cast<Pair>(from.next());
    if (both >> 32 >= patterns_.size() || (both & UINT32_MAX) >= patterns_.size()) from.refuse();
    together_.insert(both);
  }
  for (std::size_t left = from.count(); left > 0; --left) {
    const auto pattern = static_cast<std::uint32_t>(from.next(0, static_cast<std::int64_t>(patterns_.size())));
    std::int32_t nodes = 0;
    Patterns::each_node(patterns_[pattern], record_.keys(), [&](auto...) { ++nodes; });
    divided_[pattern] = static_cast<std::int32_t>(from.next(1, nodes));
  }
}

/// Whether the keys exist, each operand is an earlier node or a value from outside, and widths agree.
bool Runs::is_pattern(std::span<const std::uint32_t> list) const {
  const Keys& keys = record_.keys();
  std::vector<Index> widths;                                      // by node
  std::vector<std::pair<OperandSource::Is, Index>> from_outside;  // how they come, and widths
  const Cell* cell = nullptr;
  for (std::size_t next = 0; next < list.size();) {
    const std::uint32_t number = list[next++];
    if (number >= keys.size()) return false;
    const Key& key = keys[number];
    if (widths.empty()) cell = key.cell;
    if (key.cell != cell || key.widths.size() > list.size() - next) return false;
    if (cell != nullptr && key.attributes.sizes[0] != static_cast<Index>(widths.size())) return false;
    for (const Index width : key.widths) {
      const OperandSource source = Patterns::decode(list[next++]);
      if (source.is == OperandSource::Is::inside) {
        const bool earlier = source.number > 0 && source.number <= widths.size();
        if (!earlier || widths[widths.size() - source.number] != width) return false;
        continue;
      }
      if (source.is != OperandSource::Is::gathered && source.is != OperandSource::Is::given) return false;
      if (source.number == from_outside.size()) from_outside.emplace_back(source.is, width);
      if (source.number >= from_outside.size() || from_outside[source.number] != std::pair(source.is, width)) {
        return false;
      }
    }
    widths.push_back(keys.width(number));
  }
  return !widths.empty() && (cell == nullptr || widths.size() == 1);
}

// Kinds.

void Kinds::write(NumberWriter& to) const {
  to.add(by_groups_ ? 1 : 0);
  keys_.write(to);
  used_.write(to);
  to.add(outputs_.size());
  for (std::int32_t output = 0; output < outputs_.size(); ++output) to.add(outputs_[output].width);
  to.add(static_cast<std::int64_t>(states_.size()));
  for (const State& state : states_) to.add(state.width);
  for (const Kind& kind : kinds_) {
    to.add_list(kind.state);  // empty if an exception left the kind incomplete
    for (const std::int32_t output : kind.output) to.add(output);
    if (kind.state.empty()) continue;
    for (const Outside& value : kind.outside) to.add(value.state);
  }
}

void Kinds::read(NumberReader& from, std::uint32_t minibatch) {
  by_groups_ = from.next(0, 2) == 1;
  keys_.read(from);
  used_.read(from, keys_.size(), minibatch);
  std::map<Index, std::int32_t> outputs;  // how many of each width
  for (std::size_t left = from.count(); left > 0; --left) {
    const Index width = from.next(0, INT32_MAX);
    outputs_.id(width, outputs[width]++);
  }
  for (std::size_t left = from.count(); left > 0; --left) states_.push_back({from.next(0, INT32_MAX), {}});
  for (std::uint32_t number = 0; number < keys_.size(); ++number) {
    const auto key = keys_[number];
    if (key.empty() || key[0] >= runs_.patterns().size()) from.refuse();
    kinds_.push_back({.pattern = key[0]});
    read_last(from);
  }
  ++version_;
}

/// Makes the last kind again, with its states and outputs.
void Kinds::read_last(NumberReader& from) {
  const KindId number = size() - 1;
  Kind& kind = kinds_.back();
  const std::size_t nodes = from.count();
  if (nodes == 0) return;  // an exception left it incomplete
  const auto key = keys_[static_cast<std::uint32_t>(number)];
  const std::size_t gathered = gathered_by(kind.pattern);
  if (key.size() <= gathered) from.refuse();
  std::uint32_t children = 0;
  for (const std::uint32_t child : key.subspan(1, gathered)) {  // numbered as they occur
    if (child > children) from.refuse();
    children = std::max(children, child + 1);
  }
  kind = make(key);
  if (nodes != kind.state.size()) from.refuse();
  std::vector<Index> widths;
  for (std::size_t node = 0; node < nodes; ++node) widths.push_back(width_of(kind, static_cast<std::int32_t>(node)));
  const auto state_of = [&](Index width) {
    const auto state = static_cast<std::int32_t>(from.next(-1, static_cast<std::int64_t>(states_.size())));
    if (state >= 0 && states_[at(state)].width != width) from.refuse();
    return state;
  };
  for (std::size_t node = 0; node < nodes; ++node) {
    kind.state[node] = state_of(widths[node]);
    if (kind.state[node] < 0) continue;
    auto& with_state = states_[at(kind.state[node])].nodes;
    if (!with_state.empty() && with_state.back().kind == number) from.refuse();
    with_state.push_back({number, static_cast<std::int32_t>(node)});
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    kind.output[node] = static_cast<std::int32_t>(from.next(-1, outputs_.size()));
    if (kind.output[node] >= 0 && outputs_[kind.output[node]].width != widths[node]) from.refuse();
  }
  for (Outside& value : kind.outside) {
    value.state = state_of(value.width);
    if (value.given && value.state >= 0) from.refuse();
  }
}

}  // namespace windrow::lazy
