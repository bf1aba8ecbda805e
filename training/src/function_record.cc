#include "function_record.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "files/messages.h"

namespace windrow {
namespace {

using ir::Code, ir::Field, ir::IndexField, ir::VertexKind, ir::Node;
using List = RecordValue::List;

// In the order of the enumerators that they name.
constexpr std::string_view codes[] = {"parameter", "pull", "given", "gather", "fill", "apply"};
constexpr std::string_view pulled[] = {"input", "share_of_child"};
constexpr std::string_view pulled_indices[] = {"input", "edges",        "consumer", "sibling",
                                               "row",   "gradient_row", "dropout",  "dropout_by_sample"};

template <class Enum, std::size_t count>
std::string_view name_of(Enum value, const std::string_view (&names)[count]) {
  return names[static_cast<std::size_t>(value)];
}

// --- Writing

template <class Numbers>
List list_of(const Numbers& numbers) {
  return List(std::begin(numbers), std::end(numbers));
}

void set_rows(Record& record, const Rows& rows) {
  if (rows.counted()) {
    record.set("rows", rows.number());
  } else if (rows == Rows::edges()) {
    record.set("rows", "edges");
  }
}

Record record_of(const Node& node);
Record record_of(const VertexKind& kind);

Record record_of(const Field& field) {
  Record record;
  record.set("name", field.name).set("width", field.width);
  if (field.rows == Rows::edges()) record.set("rows", "edges");
  if (field.holds != Field::Holds::input) record.set("holds", name_of(field.holds, pulled));
  return record;
}
Record record_of(const IndexField& field) {
  Record record;
  record.set("name", field.name).set("width", field.width).set("holds", name_of(field.holds, pulled_indices));
  set_rows(record, field.rows);
  if (field.optional) record.set("optional", 1);
  if (field.tensor != 0) record.set("tensor", field.tensor);
  return record;
}

template <class Fields>
List records_of(const Fields& fields) {
  List list;
  for (const auto& field : fields) list.push_back(record_of(field));
  return list;
}

/// Without zeros at the end.
template <class Numbers>
void set_attributes(Record& record, const std::string& name, const Numbers& numbers) {
  List list = list_of(numbers);
  while (!list.empty() && list.back() == RecordValue(typename Numbers::value_type(0))) list.pop_back();
  if (!list.empty()) record.set(name, std::move(list));
}

Record record_of(const Node& node) {
  Record record;
  record.set("code", name_of(node.code, codes));
  switch (node.code) {
    case Code::fill:
      set_rows(record, node.type.rows);
      return record.set("width", node.type.width).set("constant", node.constant.value);
    case Code::apply:
      set_rows(record, node.attributes.rows);
      set_attributes(record, "sizes", node.attributes.sizes);
      set_attributes(record, "values", node.attributes.values);
      if (!node.indices.empty()) record.set("indices", list_of(node.indices));
      return record.set("op", node.op->name.text()).set("in", list_of(node.in));
    case Code::gather:
      record.set("child", node.child);
      [[fallthrough]];
    default:
      return record.set("number", node.number);
  }
}

Record record_of(const VertexKind& kind) {
  Record record;
  record.set("name", kind.name).set("arity", kind.arity).set("per_edge", kind.per_edge);
  record.set("nodes", records_of(kind.nodes)).set("scattered", list_of(kind.scattered));
  record.set("pushes", list_of(kind.pushes)).set("pulls", list_of(kind.pulls));
  return record.set("index_pulls", list_of(kind.index_pulls));
}

// --- Reading

template <class Enum, std::size_t count>
Enum read_name(const Record& record, const std::string& name, const std::string_view (&names)[count]) {
  const std::string& text = record.at(name).text();
  const auto found = std::ranges::find(names, text);
  if (found == std::end(names)) throw MisuseError(name + " " + in_quotes(text) + "; expected a known one");
  return static_cast<Enum>(found - std::begin(names));
}

Rows read_rows(const Record& record) {
  if (!record.contains("rows")) return Rows::vertices();
  const RecordValue& rows = record.at("rows");
  return rows == RecordValue("edges") ? Rows::edges() : Rows::count(rows.integer());
}

template <class Number>
std::vector<Number> read_numbers(const RecordValue& value) {
  std::vector<Number> numbers;
  for (const RecordValue& one : value.list()) {
    const std::int64_t number = one.integer();
    numbers.push_back(std::in_range<Number>(number) ? static_cast<Number>(number) : Number(-1));  // which is refused
  }
  return numbers;
}

template <class Numbers, class Read>
void read_attributes(const Record& record, const std::string& name, Numbers& to, Read read) {
  if (!record.contains(name)) return;
  const List& list = record.at(name).list();
  if (list.size() > to.size()) throw MisuseError(name + " with more than " + std::to_string(to.size()) + " numbers");
  std::ranges::transform(list, to.begin(), read);
}

void read(const Record& record, Field& field) {
  field.name = record.at("name").text();
  field.width = record.at("width").integer();
  field.rows = read_rows(record);
  if (record.contains("holds")) field.holds = read_name<Field::Holds>(record, "holds", pulled);
}
void read(const Record& record, IndexField& field) {
  field.name = record.at("name").text();
  field.width = record.at("width").integer();
  field.rows = read_rows(record);
  field.holds = read_name<IndexField::Holds>(record, "holds", pulled_indices);
  field.optional = record.contains("optional");
  if (record.contains("tensor")) field.tensor = record.at("tensor").count();
}

template <class T>
std::vector<T> read_fields(const Record& record, const std::string& name) {
  std::vector<T> fields;
  for (const RecordValue& one : record.at(name).list()) {
    read(one.record(), fields.emplace_back(T{.name = {}, .width = 0, .rows = Rows::vertices()}));
  }
  return fields;
}

Node read_node(const Record& record, const KernelTable<float>& kernels) {
  Node node{.code = read_name<Code>(record, "code", codes), .type = {Rows::vertices(), 0}};
  if (node.code == Code::fill) {
    node.type = {read_rows(record), record.at("width").integer()};
    node.constant = record.at("constant").number();
    return node;
  }
  if (node.code != Code::apply) {
    node.number = record.at("number").count();
    if (node.code == Code::gather) node.child = record.at("child").integer();
    return node;
  }
  const std::string& name = record.at("op").text();
  node.op = kernels.named(name);
  if (node.op == nullptr) throw MisuseError("operator " + in_quotes(name) + " has no kernel; expected one that has");
  node.in = read_numbers<ir::Value>(record.at("in"));
  if (record.contains("indices")) node.indices = read_numbers<std::size_t>(record.at("indices"));
  node.attributes.rows = read_rows(record);
  read_attributes(record, "sizes", node.attributes.sizes, [](const RecordValue& one) { return one.integer(); });
  read_attributes(record, "values", node.attributes.values, [](const RecordValue& one) { return one.number(); });
  return node;
}

VertexKind read_kind(const Record& record, const KernelTable<float>& kernels) {
  VertexKind kind{.name = record.at("name").text(),
                  .arity = record.at("arity").count(),
                  .per_edge = record.at("per_edge").count(),
                  .scattered = read_numbers<ir::Value>(record.at("scattered")),
                  .pushes = read_numbers<ir::Value>(record.at("pushes")),
                  .pulls = read_numbers<std::size_t>(record.at("pulls")),
                  .index_pulls = read_numbers<std::size_t>(record.at("index_pulls"))};
  for (const RecordValue& node : record.at("nodes").list()) kind.nodes.push_back(read_node(node.record(), kernels));
  return kind;
}

}  // namespace

Record record_of(const ir::Function& function) {
  Record record;
  record.set_format(program_format).set("name", function.name);
  record.set("states", records_of(function.states)).set("pulls", records_of(function.pulls));
  record.set("outputs", records_of(function.outputs)).set("tensors", records_of(function.tensors));
  record.set("index_pulls", records_of(function.index_pulls));
  return record.set("kinds", records_of(function.kinds));
}

ir::Function function_of(const Record& record, const KernelTable<float>& kernels) {
  record.require_format(program_format);
  ir::Function function{.name = record.at("name").text(),
                        .states = read_fields<Field>(record, "states"),
                        .pulls = read_fields<Field>(record, "pulls"),
                        .outputs = read_fields<Field>(record, "outputs"),
                        .tensors = read_fields<Field>(record, "tensors"),
                        .index_pulls = read_fields<IndexField>(record, "index_pulls"),
                        .kinds = {}};
  for (const RecordValue& kind : record.at("kinds").list()) {
    function.kinds.push_back(read_kind(kind.record(), kernels));
  }
  return function;
}

}  // namespace windrow
