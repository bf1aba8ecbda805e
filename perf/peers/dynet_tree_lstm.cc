// The Tree-LSTM of `windrow-perf train --model tree-lstm` in DyNet: the same trees, cell, order and minibatches. DyNet
// finds the batches. This is a separate program that links nothing of Windrow; scripts/peers runs both.
//
// DyNet (clab/dynet, commit 22b4495) is built from its sources. OpenBLAS computes the matrix products, because Eigen's
// own are slower. With DyNet in $DYNET, and Debian's libeigen3-dev and libopenblas-dev:
//
//   export CXXFLAGS='-march=native -DEIGEN_USE_BLAS' EIGEN3_INCLUDE_DIR=/usr/include/eigen3
//   cmake -S $DYNET -B $DYNET/build -DCMAKE_BUILD_TYPE=Release -DRELEASE_OPT_LEVEL=3
//   cmake --build $DYNET/build --target dynet
//   g++ -std=c++17 -O3 -w $CXXFLAGS -I $DYNET -isystem $EIGEN3_INCLUDE_DIR -c perf/peers/dynet_tree_lstm.cc
//   g++ dynet_tree_lstm.o -o dynet_tree_lstm $DYNET/build/dynet/libdynet.so -Wl,-rpath,$DYNET/build/dynet -lopenblas
//   OPENBLAS_NUM_THREADS=1 ./dynet_tree_lstm --data DIR --dynet-autobatch 1 --dynet-seed 1
//
// DIR contains train.txt and dev.txt, with one bracketed binary tree per line. DyNet exits if --dynet-mem is too small.
// The cell is that of models/include/windrow/models/tree_lstm.h, with a loss at every vertex. Training is plain
// gradient descent without clipping, as in Windrow. Words that occur once in train.txt are unknown. The order of the
// trees is Windrow's, and 512 trees warm up before the first pass. Inference computes the losses of the trees in
// dev.txt. Prints one JSON object per pass, with trees/s and the peak resident memory so far.
#include <dynet/dynet.h>
#include <dynet/expr.h>
#include <dynet/init.h>
#include <dynet/param-init.h>
#include <dynet/training.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using dynet::affine_transform;
using dynet::Expression;
using dynet::sum;

constexpr unsigned labels = 5;
constexpr int unknown = 0;

struct Arguments {
  std::string data;
  unsigned hidden = 256, embedding = 256, batch = 64, passes = 2;
  float rate = 0.1f;
  bool inference = false, apart = false;
};

struct Vertex {
  unsigned label = labels;               // `labels`: no label yet
  int word = -1, left = -1, right = -1;  // a word's number, or the indices of the children in the tree; -1: none
};
using Tree = std::vector<Vertex>;  // children before their parents

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

/// The trees, and numbers for their words. Words that occur once in the training set get the number `unknown`.
class Treebank {
 public:
  explicit Treebank(const std::string& folder) : training(read(folder + "/train.txt")) {
    std::vector<int> counts(numbers_.size() + 1);
    const auto each_word = [this](const auto& act) {
      for (Tree& tree : training) {
        for (Vertex& vertex : tree) {
          if (vertex.word >= 0) act(vertex.word);
        }
      }
    };
    each_word([&](int word) { ++counts[word]; });
    std::vector<int> as(counts.size(), unknown);
    for (std::size_t word = 1; word < counts.size(); ++word) as[word] = counts[word] > 1 ? ++vocabulary_ : unknown;
    each_word([&](int& word) { word = as[word]; });
    for (auto& [word, number] : numbers_) number = as[number];
    known_ = true;
    validation = read(folder + "/dev.txt");
  }

  unsigned vocabulary() const { return static_cast<unsigned>(vocabulary_) + 1; }

 private:
  std::vector<Tree> read(const std::string& file) {
    std::ifstream in(file);
    if (!in) refuse(file + ": cannot be read; expected a file of trees, one per line");
    std::vector<Tree> trees;
    for (std::string line; std::getline(in, line);) {
      Tree tree;
      if (!parse(line, tree))
        refuse(file + ": line " + std::to_string(trees.size() + 1) +
               ": not a binary tree; expected one such as (3 (2 It) (4 works))");
      if (!tree.empty()) trees.push_back(std::move(tree));
    }
    if (trees.empty()) refuse(file + ": no tree; expected one per line");
    return trees;
  }

  bool parse(const std::string& line, Tree& tree) {
    std::vector<Vertex> open;
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t end = std::min(line.find_first_of("() ", at), line.size());
      if (end > at) {
        if (open.empty() || !take(line.substr(at, end - at), open.back())) return false;
        at = end;
        continue;
      }
      if (line[at] == '(') {
        open.emplace_back();
      } else if (line[at] == ')') {
        if (open.empty() || open.back().label == labels) return false;
        if ((open.back().word < 0) != (open.back().right >= 0)) return false;
        tree.push_back(open.back());
        open.pop_back();
        const int place = static_cast<int>(tree.size()) - 1;
        if (!open.empty()) (open.back().left < 0 ? open.back().left : open.back().right) = place;
      }
      ++at;
    }
    return open.empty();
  }

  /// Takes a word of the text. The first word after an opening bracket is the label.
  bool take(const std::string& word, Vertex& vertex) {
    if (vertex.label == labels) {
      if (word.size() != 1 || word[0] < '0' || word[0] >= '0' + static_cast<char>(labels)) return false;
      vertex.label = static_cast<unsigned>(word[0] - '0');
    } else if (known_) {
      const auto found = numbers_.find(word);
      vertex.word = found == numbers_.end() ? unknown : found->second;
    } else {
      vertex.word = numbers_.emplace(word, static_cast<int>(numbers_.size()) + 1).first->second;
    }
    return true;
  }

  std::map<std::string, int> numbers_;
  bool known_ = false;
  int vocabulary_ = 0;

 public:  // declared after the members that reading them needs
  std::vector<Tree> training, validation;
};

/// The parameters that compute the gates (input, output, new value) from the input vectors. Either one matrix contains
/// all gates, and their results are parts of one vector, or each gate has its own matrix. DyNet is faster with one
/// matrix for large cells or small batches, and with separate matrices otherwise. The products are the same.
class Gates {
 public:
  Gates(dynet::ParameterCollection& all, bool apart, unsigned hidden, const std::vector<unsigned>& widths)
      : apart_(apart), hidden_(hidden) {
    for (unsigned part = 0; part < (apart ? 3 : 1); ++part) {
      parameters_.push_back({all.add_parameters({rows()}, dynet::ParameterInitConst(0))});
      for (const unsigned width : widths) parameters_.back().push_back(all.add_parameters({rows(), width}));
    }
  }

  /// The parameters as expressions of one minibatch.
  class Loaded {
   public:
    Loaded(const Gates& of, dynet::ComputationGraph& graph) : of_(of) {
      for (const auto& part : of.parameters_) {
        parts_.emplace_back();
        for (const dynet::Parameter& parameter : part) parts_.back().push_back(dynet::parameter(graph, parameter));
      }
    }
    /// Returns the gates of a vertex whose input vectors are `seen`.
    std::vector<Expression> of(const std::vector<Expression>& seen) const {
      std::vector<Expression> gates;
      for (const std::vector<Expression>& part : parts_) {
        std::vector<Expression> terms = {part[0]};
        for (std::size_t i = 0; i < seen.size(); ++i) terms.insert(terms.end(), {part[i + 1], seen[i]});
        gates.push_back(affine_transform(terms));
      }
      if (of_.apart_) return gates;
      const Expression all = gates[0];
      gates.clear();
      for (unsigned k = 0; k < 3; ++k) gates.push_back(pick_range(all, k * of_.hidden_, (k + 1) * of_.hidden_));
      return gates;
    }

   private:
    const Gates& of_;
    std::vector<std::vector<Expression>> parts_;
  };

 private:
  unsigned rows() const { return apart_ ? hidden_ : 3 * hidden_; }

  const bool apart_;
  const unsigned hidden_;
  std::vector<std::vector<dynet::Parameter>> parameters_;  // by part: its bias, and a matrix per input vector
};

class TreeLstm {
 public:
  TreeLstm(unsigned vocabulary, const Arguments& sizes)
      : h_(sizes.hidden),
        e_(sizes.embedding),
        words_(all_.add_lookup_parameters(vocabulary, {e_}, dynet::ParameterInitUniform(-0.1f, 0.1f))),
        leaf_(all_, sizes.apart, h_, {e_}),
        inner_(all_, sizes.apart, h_, {h_, h_}),
        forget_(all_.add_parameters({h_, h_})),
        forget_bias_(all_.add_parameters({h_}, dynet::ParameterInitConst(1))),
        head_(all_.add_parameters({labels, h_})),
        head_bias_(all_.add_parameters({labels}, dynet::ParameterInitConst(0))) {}

  dynet::ParameterCollection& parameters() { return all_; }

  class Minibatch {
   public:
    Minibatch(TreeLstm& of, dynet::ComputationGraph& graph)
        : of_(of),
          graph_(graph),
          leaf_(of.leaf_, graph),
          inner_(of.inner_, graph),
          forget_(parameter(graph, of.forget_)),
          forget_bias_(parameter(graph, of.forget_bias_)),
          head_(parameter(graph, of.head_)),
          head_bias_(parameter(graph, of.head_bias_)) {}

    void add(const Tree& tree) {
      std::vector<State> states;
      states.reserve(tree.size());
      for (const Vertex& vertex : tree) {
        states.push_back(vertex.word >= 0 ? leaf(vertex.word) : inner(states[vertex.left], states[vertex.right]));
        losses_.push_back(pickneglogsoftmax(affine_transform({head_bias_, head_, states.back().h}), vertex.label));
      }
    }
    Expression loss() const { return sum(losses_); }

   private:
    struct State {
      Expression h, c;
    };

    State leaf(int word) {
      const auto gates = leaf_.of({lookup(graph_, of_.words_, static_cast<unsigned>(word))});
      return state(gates, cmult(logistic(gates[0]), tanh(gates[2])));
    }
    State inner(const State& left, const State& right) {
      const auto gates = inner_.of({left.h, right.h});
      return state(gates, sum({cmult(logistic(gates[0]), tanh(gates[2])), kept(left), kept(right)}));
    }
    static State state(const std::vector<Expression>& gates, const Expression& c) {
      return {cmult(logistic(gates[1]), tanh(c)), c};
    }
    Expression kept(const State& child) const {
      return cmult(logistic(affine_transform({forget_bias_, forget_, child.h})), child.c);
    }

    TreeLstm& of_;
    dynet::ComputationGraph& graph_;
    const Gates::Loaded leaf_, inner_;
    const Expression forget_, forget_bias_, head_, head_bias_;
    std::vector<Expression> losses_;
  };

  /// The floating point operations of the products in the forward pass of a tree, as Windrow counts them.
  double flops(const Tree& tree) const {
    const double h = h_, e = e_;
    double sum = 0;
    for (const Vertex& vertex : tree) sum += (vertex.word >= 0 ? 6 * h * e : 16 * h * h) + 2 * h * labels;
    return sum;
  }

 private:
  const unsigned h_, e_;
  dynet::ParameterCollection all_;
  dynet::LookupParameter words_;
  Gates leaf_, inner_;
  dynet::Parameter forget_, forget_bias_, head_, head_bias_;
};

/// The peak resident memory of the process, in MB of 10^6 bytes.
double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + 6) * 1024 / 1e6;
  }
  return 0;
}

class Run {
 public:
  explicit Run(const Arguments& arguments) : arguments_(arguments) {
    Treebank treebank(arguments.data);
    trees_ = std::move(arguments.inference ? treebank.validation : treebank.training);
    model_ = std::make_unique<TreeLstm>(treebank.vocabulary(), arguments);
    trainer_ = std::make_unique<dynet::SimpleSGDTrainer>(model_->parameters());
    trainer_->clipping_enabled = false;
    for (std::size_t i = 0; i < trees_.size(); ++i) order_.push_back(i);
    pass(512);
  }

  /// Runs that many trees, or all if there are fewer, in a new order when training. Returns the mean loss per label.
  double pass(std::size_t trees) {
    if (!arguments_.inference) {
      for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
    }
    trees = std::min(trees, trees_.size());
    double loss = 0, vertices = 0;
    for (std::size_t begin = 0; begin < trees; begin += arguments_.batch) {
      const std::size_t end = std::min<std::size_t>(begin + arguments_.batch, trees);
      dynet::ComputationGraph graph;
      TreeLstm::Minibatch minibatch(*model_, graph);
      for (std::size_t i = begin; i < end; ++i) {
        minibatch.add(trees_[order_[i]]);
        vertices += trees_[order_[i]].size();
      }
      const Expression of_all = minibatch.loss();
      loss += as_scalar(graph.forward(of_all));
      if (arguments_.inference) continue;
      graph.backward(of_all);
      trainer_->learning_rate = arguments_.rate / static_cast<float>(end - begin);
      trainer_->update();
    }
    return loss / vertices;
  }

  void report() {
    const auto began = std::chrono::steady_clock::now();
    const double loss = pass(trees_.size());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    double flops = 0;
    for (const Tree& tree : trees_) flops += model_->flops(tree);
    flops *= (arguments_.inference ? 1.0 : 3.0) / static_cast<double>(trees_.size());
    std::printf(
        "{\"system\": \"dynet\", \"model\": \"tree-lstm\", \"mode\": \"%s\", \"workers\": 1, \"hidden\": %u, "
        "\"embedding\": %u, \"batch\": %u, \"gates\": \"%s\", \"unit\": \"trees\", \"units\": %zu, \"units_per_s\": "
        "%.6g, "
        "\"flops_per_unit\": %.9g, \"loss\": %.6g, \"peak_rss_mb\": %.6g}\n",
        arguments_.inference ? "inference" : "training", arguments_.hidden, arguments_.embedding, arguments_.batch,
        arguments_.apart ? "apart" : "joined", trees_.size(), static_cast<double>(trees_.size()) / seconds, flops, loss,
        peak_rss_mb());
    std::fflush(stdout);
  }

 private:
  const Arguments arguments_;
  std::vector<Tree> trees_;
  std::unique_ptr<TreeLstm> model_;
  std::unique_ptr<dynet::SimpleSGDTrainer> trainer_;
  std::mt19937_64 random_{1};
  std::vector<std::size_t> order_;
};

/// Parses the arguments that DyNet has not consumed.
Arguments parse(int argc, char** argv) {
  Arguments to;
  const std::map<std::string, unsigned*> sizes = {
      {"--hidden", &to.hidden}, {"--embedding", &to.embedding}, {"--batch", &to.batch}, {"--passes", &to.passes}};
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--inference" || flag == "--apart") {
      (flag == "--apart" ? to.apart : to.inference) = true;
      continue;
    }
    const auto size = sizes.find(flag);
    if (flag != "--data" && size == sizes.end()) {
      refuse("unknown argument '" + flag +
             "'; expected --data, --hidden, --embedding, --batch, --passes, --inference, --apart "
             "or one of DyNet's");
    }
    if (++i == argc) refuse(flag + ": no value");
    if (flag == "--data") {
      to.data = argv[i];
      continue;
    }
    char* end = nullptr;
    const long value = std::strtol(argv[i], &end, 10);
    if (*end != '\0' || value < 1 || value > 1 << 20) refuse(flag + ": '" + argv[i] + "'; expected 1 to 1048576");
    *size->second = static_cast<unsigned>(value);
  }
  if (to.data.empty()) refuse("--data: no value; expected a folder with train.txt and dev.txt");
  return to;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    dynet::initialize(argc, argv);  // removes DyNet's own arguments
    const Arguments arguments = parse(argc, argv);
    Run run(arguments);
    for (unsigned pass = 0; pass < arguments.passes; ++pass) run.report();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dynet_tree_lstm: %s\n", error.what());
    return 2;
  }
}
