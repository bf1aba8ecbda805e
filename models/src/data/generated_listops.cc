// Trees with the distribution of the program of Nangia and Bowman (2018).
#include <unordered_set>

#include "data/draws.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

void check(const char* name, int value, int most) {
  if (value >= 2 && value <= most) return;
  throw MisuseError(std::string("generate_listops: ") + name + " " + std::to_string(value) + "; expected 2 to " +
                    std::to_string(most));
}

class ListGenerator {
 public:
  ListGenerator(std::uint64_t seed, const ListOpsShape& shape) : draws_(seed), shape_(shape) {}

  /// The line of a tree: its value, then the tree.
  std::string tree() {
    text_.clear();
    const std::int32_t value = list(1);
    return std::to_string(value) + '\t' + text_ + '\n';
  }

 private:
  /// Appends a vertex and returns its value. `depth` is 1 for the root.
  std::int32_t argument(int depth) {
    if (depth < shape_.max_depth && draws_.chance(0.25)) return list(depth);
    const int digit = draws_.below(10);
    text_ += static_cast<char>('0' + digit);
    return digit;
  }

  /// Each argument, and the end of the list, adds a pair of round brackets around the list so far.
  std::int32_t list(int depth) {
    const int count = 2 + draws_.below(shape_.max_arguments - 1);
    const auto which = static_cast<std::size_t>(draws_.below(static_cast<int>(listops_operators.size())));
    for (int i = 0; i <= count; ++i) text_ += "( ";
    text_.append("[").append(listops_operators[which]);
    std::vector<std::int32_t> values;
    for (int i = 0; i < count; ++i) {
      text_ += ' ';
      values.push_back(argument(depth + 1));
      text_ += " )";
    }
    text_ += " ] )";
    return listops_value(10 + static_cast<std::int32_t>(which), values);
  }

  Draws draws_;
  const ListOpsShape shape_;
  std::string text_;
};

}  // namespace

std::string generate_listops(std::size_t trees, std::uint64_t seed, const ListOpsShape& shape) {
  check("max_arguments", shape.max_arguments, 10);
  check("max_depth", shape.max_depth, 20);
  constexpr int attempts = 20;  // bounded, since some shapes have few different trees
  ListGenerator generator(seed, shape);
  std::unordered_set<std::string> seen;
  std::string text;
  for (std::size_t i = 0; i < trees; ++i) {
    std::string tree = generator.tree();
    for (int attempt = 1; attempt < attempts && seen.contains(tree); ++attempt) tree = generator.tree();
    text += tree;
    seen.insert(std::move(tree));
  }
  return text;
}

}  // namespace windrow
