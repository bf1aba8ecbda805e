// A key-value store as in MXNet: devices push gradients under a key, the store's updater changes the value with their
// sum, and devices pull the new value. All of this is ops: a pull waits for the pushes of its key and for nothing else.
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "windrow/comm/local.h"
#include "windrow/ops/apply.h"

using windrow::Tensor;

/// Member 0 of the group is the device of the store. Values and gradients of the other members are listed in the order
/// of their ranks.
class KeyValueStore {
 public:
  using Updater = std::function<void(const windrow::Device& device, const Tensor& sum, const Tensor& value)>;
  KeyValueStore(windrow::LocalGroup group, Updater updater) : group_(std::move(group)), update_(std::move(updater)) {}

  /// A value of one column.
  void init(const std::string& key, const std::vector<float>& value) {
    const auto rows = static_cast<windrow::Index>(value.size());
    values_.emplace(key, Tensor(group_[0].device(), rows, 1, "value")).first->second.set(value);
  }
  void push(const std::string& key, const std::vector<Tensor>& gradients) const {
    const Tensor& value = values_.at(key);
    const std::vector<Tensor> sum = {Tensor(group_[0].device(), value.rows(), 1, "sum")};
    sum[0].set(std::vector<float>(static_cast<std::size_t>(value.rows()), 0));
    group_[0].reduce(sum, 0);
    for (int rank = 1; rank < group_.size(); ++rank) group_[rank].reduce(of(rank, gradients), 0);
    update_(group_[0].device(), sum[0], value);
  }
  void pull(const std::string& key, const std::vector<Tensor>& to) const {
    group_[0].broadcast(std::vector{values_.at(key)}, 0);
    for (int rank = 1; rank < group_.size(); ++rank) group_[rank].broadcast(of(rank, to), 0);
  }

 private:
  static std::vector<Tensor> of(int rank, const std::vector<Tensor>& all) {
    return {all.at(static_cast<std::size_t>(rank - 1))};
  }

  windrow::LocalGroup group_;
  Updater update_;
  std::map<std::string, Tensor> values_;
};

int main() {
  namespace op = windrow::op;
  windrow::Engine engine;
  const windrow::LocalGroup group(windrow::host_devices(engine, 3));
  KeyValueStore store(group, [](const windrow::Device& device, const Tensor& sum, const Tensor& value) {
    apply(device, op::sgd, {.in = {sum}, .attributes = op::at_rate(0.05), .write = windrow::Write::add}, value);
  });
  store.init("a", {0});
  store.init("b", {0});
  // Points of y = 3 x - 2; each of two devices has eight.
  std::vector<Tensor> x, y, a, b;
  for (int rank = 1; rank < group.size(); ++rank) {
    for (auto* of : {&x, &y}) of->emplace_back(group[rank].device(), 8, 1);
    for (auto* of : {&a, &b}) of->emplace_back(group[rank].device(), 1, 1);
    std::vector<float> xs, ys;
    for (int i = rank; i <= 16; i += 2) xs.push_back(static_cast<float>(i) / 8 - 1), ys.push_back(3 * xs.back() - 2);
    x.back().set(xs);
    y.back().set(ys);
  }
  for (int step = 0; step < 200; ++step) {
    store.pull("a", a);
    store.pull("b", b);
    std::vector<Tensor> of_a, of_b;  // gradients of half the squared distance
    for (std::size_t i = 0; i < x.size(); ++i) {
      const windrow::Device& device = group[static_cast<int>(i) + 1].device();
      const Tensor line = apply(device, op::add_bias, {.in = {apply(device, op::matmul, {.in = {x[i], a[i]}}), b[i]}});
      const Tensor error = apply(device, op::sub, {.in = {line, y[i]}});
      of_a.push_back(apply(device, op::matmul_tn, {.in = {x[i], error}}));
      of_b.push_back(apply(device, op::column_sum, {.in = {error}}));
    }
    store.push("a", of_a);
    store.push("b", of_b);
  }
  store.pull("a", a);
  store.pull("b", b);
  std::printf("y = %.2f x + %.2f\n", a[1].get()[0], b[1].get()[0]);
}
