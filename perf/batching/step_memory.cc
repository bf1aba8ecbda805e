// Time and peak memory of steps of operators, by when their tensors get memory and where: as SINGA reports them for
// its graphs. A step is done
//
//   eager        all results are made and allocated before the step, and kept until its end;
//   lazy         the same, but the op that writes a result first allocates it;
//   recycled     a result is made where an operator is applied, and freed behind the last op that uses it;
//   planned      all results lie in one block, at places that the memory planner gave them once;
//   replayed     by a Static, which plans likewise.
//
// With order `serial`, ops run one at a time in the order of the program. With `parallel`, workers run ops that do not
// depend on each other concurrently, and a plan must be right for each order of them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <unordered_map>

#include "batching/antichain.h"
#include "batching/operator_programs.h"
#include "batching/tables.h"
#include "batching/turns.h"
#include "windrow/memory/planner.h"

namespace windrow::perf {
namespace {

enum class Placing { eager, lazy, recycled, planned, replayed };
constexpr std::pair<Placing, const char*> placings[] = {{Placing::eager, "eager"},
                                                        {Placing::lazy, "lazily allocated"},
                                                        {Placing::recycled, "recycled"},
                                                        {Placing::planned, "planned"},
                                                        {Placing::replayed, "replayed"}};
constexpr const NamedProgram* programs[] = {&mlp_step, &fixed_lstm_step, &mlp_forward, &tree_lstm_forward};

/// Counts the bytes that were requested. Pools count whole pieces.
class RequestedBytes final : public DividingAllocator {
 public:
  explicit RequestedBytes(std::shared_ptr<Allocator> below) : DividingAllocator(std::move(below), "requested bytes") {}

  std::byte* allocate(std::size_t bytes) override {
    std::byte* const start = below_->allocate(bytes);
    const std::size_t now = live_ += bytes;
    std::size_t most = peak_;
    while (most < now && !peak_.compare_exchange_weak(most, now)) {
    }
    return start;
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    below_->deallocate(start, bytes);
    live_ -= bytes;
  }

  /// From now on, what is live now does not count. No op may be pending.
  void begin() {
    base_ = live_;
    peak_ = base_;
  }
  std::size_t peak() const { return peak_ - base_; }

 private:
  std::atomic<std::size_t> live_{0}, peak_{0};  // written by all threads
  std::size_t base_ = 0;
};

struct ResultShape {
  Index rows, width;
  OpName name;
  std::uint32_t number;  ///< of the buffer in the planned program
};

/// What a step applies, and the tensors that it makes: one step is run to find out.
class StepListing {
 public:
  StepListing(const NamedProgram& program, const ProgramSizes& sizes) {
    Engine engine({.policy = Policy::serial});
    const Device host = host_device(engine);
    const std::unique_ptr<OperatorProgram> listed = program.make(host, sizes);
    const Tape::Apply apply = applied_to_new(host);
    const Tensor result = listed->step(
        listed->inputs(), [&](const Operator& op, const Operands& operands, const Tensor* out, auto pushed_at) {
          const Tensor made = apply(op, operands, out, pushed_at);
          if (out == nullptr) add_result(made, op.name);
          add_step(op, operands, made);
          return made;
        });
    result_ = number_of(result.buffer());
    held_.clear();
    numbers_.clear();
  }

  const std::vector<ResultShape>& results() const { return results_; }
  /// `held`: when the step's result is alive besides.
  MemoryPlan plan(StepOrder order, Held held) const {
    MemoryProgram program = program_;
    program.order = order;
    program.buffers[result_].held = held;
    MemoryPlan made = plan_memory(program);
    if (order == StepOrder::dependences) made.lower_bound = Antichain(program).bytes();
    return made;
  }

 private:
  void add_result(const Tensor& made, OpName name) {
    const std::uint32_t number = program_.add(PlannedBuffer{.bytes = made.buffer()->size()});
    results_.push_back({made.rows(), made.width(), name, number});
    hold(made.buffer(), number);
  }
  void hold(const std::shared_ptr<Buffer>& buffer, std::uint32_t number) {
    held_.push_back(buffer);
    numbers_.emplace(buffer.get(), number);
  }
  /// A buffer that the step does not make takes no bytes, but orders steps.
  std::uint32_t number_of(const std::shared_ptr<Buffer>& buffer) {
    const auto found = numbers_.find(buffer.get());
    if (found != numbers_.end()) return found->second;
    const std::uint32_t number = program_.add(PlannedBuffer{.held = Held::throughout});
    hold(buffer, number);
    return number;
  }
  void add_step(const Operator& op, const Operands& operands, const Tensor& out) {
    PlannedStep step;
    const std::uint32_t result = number_of(out.buffer());
    for (const Tensor& tensor : operands.in) step.reads.push_back(number_of(tensor.buffer()));
    for (const IntTensor& tensor : operands.indices) step.reads.push_back(number_of(tensor.buffer()));
    step.writes.push_back(result);
    for (const Tensor& state : operands.states) {
      step.reads.push_back(number_of(state.buffer()));
      step.writes.push_back(number_of(state.buffer()));
    }
    if (operands.write == Write::add) {
      step.reads.push_back(result);
    } else if (op.locality == Locality::elementwise) {
      for (const Tensor& tensor : operands.in) {
        const bool same_places = tensor.whole() && tensor.buffer()->size() == out.buffer()->size();
        if (same_places) step.in_place.push_back({number_of(tensor.buffer()), result});
      }
    }
    program_.add(std::move(step));
  }

  MemoryProgram program_;
  std::uint32_t result_ = 0;  // the step's
  std::vector<ResultShape> results_;
  std::vector<std::shared_ptr<Buffer>> held_;  // so that no two have one address
  std::unordered_map<const Buffer*, std::uint32_t> numbers_;
};

/// One way to run a program, on an engine of its own.
struct StepVariant {
  Placing placing;
  int workers;  ///< 0 for order `serial`
};

class PlacedSteps {
 public:
  PlacedSteps(const NamedProgram& program, const ProgramSizes& sizes, const StepVariant& variant,
              std::span<const ResultShape> shapes, const MemoryPlan& plan)
      : placing_(variant.placing),
        shapes_(shapes),
        plan_(plan),
        engine_(
            {.policy = variant.workers == 0 ? Policy::serial : Policy::pool, .workers = std::max(1, variant.workers)}),
        program_(program.make(host_, sizes)),
        static_(host_,
                [this](const StaticInputs&) { return std::vector{program_->step(program_->inputs(), apply_new_)}; },
                {.order = variant.workers == 0 ? StaticOptions::Order::serial : StaticOptions::Order::parallel}) {
    engine_.wait_all();
    bytes_->begin();
  }

  /// The result of a step.
  std::vector<float> computed() { return step().get(); }
  /// Microseconds of a step.
  double step_time(double seconds) {
    engine_.wait_all();
    const auto began = Clock::now();
    int steps = 0;
    for (; steps == 0 || since(began) < seconds; ++steps) {
      static_cast<void>(step());
      engine_.wait_all();
    }
    return 1e6 * since(began) / steps;
  }
  /// Of all steps, in bytes, besides parameters and inputs.
  std::size_t peak() const { return bytes_->peak(); }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

  Device counted_host() {
    Device host = host_device(engine_);
    host.memory = bytes_ = std::make_shared<RequestedBytes>(host.memory);
    return host;
  }

  Tensor step() {
    if (placing_ == Placing::replayed) return static_().front();
    if (placing_ == Placing::recycled) return program_->step(program_->inputs(), apply_new_);
    make_results();
    const Tensor result = program_->step(program_->inputs(), apply_made_);
    if (placing_ != Placing::planned) engine_.wait_all();  // kept till the end of the last op
    results_.clear();
    return result;
  }

  void make_results() {
    for (const ResultShape& shape : shapes_) results_.emplace_back(host_, shape.rows, shape.width, shape.name);
    next_ = 0;
    if (placing_ == Placing::eager) {
      for (const Tensor& result : results_) result.buffer()->bytes().write();
    } else if (placing_ == Placing::planned) {
      Arena arena(engine_, host_.memory, plan_.bytes);
      for (std::size_t k = 0; k < results_.size(); ++k) {
        arena.lay(*results_[k].buffer(), plan_.offsets[shapes_[k].number]);
      }
    }
  }

  const Placing placing_;
  const std::span<const ResultShape> shapes_;
  const MemoryPlan& plan_;
  Engine engine_;
  const program::ToldOnce once_{engine_};
  std::shared_ptr<RequestedBytes> bytes_;
  const Device host_ = counted_host();
  std::vector<Tensor> results_;  // of the step, in the order in which it applies operators
  std::size_t next_ = 0;         // of them
  const Tape::Apply apply_new_ = applied_to_new(host_);
  const Tape::Apply apply_made_ = [this](const Operator& op, const Operands& operands, const Tensor* out,
                                         std::source_location pushed_at) {
    return apply_new_(op, operands, out == nullptr ? &results_.at(next_++) : out, pushed_at);
  };
  const std::unique_ptr<OperatorProgram> program_;
  Static static_;
};

/// Plans for one order. The result of a replay keeps its memory until the next one has overwritten it.
struct OrderPlans {
  OrderPlans(const StepListing& listing, StepOrder order)
      : pushed(listing.plan(order, Held::after)), replayed(listing.plan(order, Held::throughout)) {}
  MemoryPlan pushed, replayed;
};

/// All rows of one program.
struct ProgramRows {
  ProgramRows(const NamedProgram& measured, const TableOptions& options)
      : program(measured), listing(measured, sizes_of(options)) {
    std::vector<int> worker_counts = {0};
    worker_counts.insert(worker_counts.end(), options.worker_counts.begin(), options.worker_counts.end());
    for (const int workers : worker_counts) {
      for (const auto& [placing, name] : placings) {
        const StepVariant& variant = variants.emplace_back(StepVariant{placing, workers});
        steps.push_back(
            std::make_unique<PlacedSteps>(program, sizes_of(options), variant, listing.results(), plan_of(variant)));
        require_equal(steps.back()->computed(), name);
      }
    }
  }
  /// All variants begin with the same parameters, so a first step has one result.
  void require_equal(const std::vector<float>& computed, const std::string& name) {
    if (steps.size() == 1) expected = computed;
    if (computed == expected) return;
    throw Error(std::string("static: a step of ") + program.name + " that is " + name + " computes another result");
  }
  static ProgramSizes sizes_of(const TableOptions& options) {
    return {options.batches.front(), options.hidden.front(), options.workload.seed};
  }
  const MemoryPlan& plan_of(const StepVariant& variant) const {
    const OrderPlans& plans = variant.workers == 0 ? serial : parallel;
    return variant.placing == Placing::replayed ? plans.replayed : plans.pushed;
  }

  const NamedProgram& program;
  const StepListing listing;
  const OrderPlans serial{listing, StepOrder::serial}, parallel{listing, StepOrder::dependences};
  std::vector<StepVariant> variants;
  std::vector<std::unique_ptr<PlacedSteps>> steps;
  std::vector<float> expected;  // the result of a first step
};

Result empty_result(const TableOptions& options) {
  Result result{.name = "static",
                .title = "Time and peak memory of steps, by when and where tensors get memory",
                .command = {},
                .about = "Layers " + std::to_string(options.hidden.front()) + " wide, minibatches of " +
                         std::to_string(options.batches.front()) +
                         ": a training step of a perceptron of 3 layers and of an LSTM over 16 steps, and perceptrons "
                         "of 20 layers and binary Tree-LSTMs of 16 leaves forward. Step: the time from the first push "
                         "to the end of all ops, as medians of repetitions in which all variants took turns; its ratio "
                         "is to `eager` in the same order. Peak: the most bytes requested at one moment, without "
                         "parameters and inputs. The bound: no plan for this order takes less; the result of a "
                         "replayed step keeps its memory for the next one. A plan for order `parallel` is right for "
                         "each order of ops that do not depend on each other, so its bound can be above what one run "
                         "takes without a plan. The sum: all tensors that a step makes.",
                .table = Table({{"program", 0},
                                {"order", 0},
                                {"memory", 0},
                                {"step us", 1},
                                {"step ratio", 3},
                                {"peak KiB", 1},
                                {"bound KiB", 1},
                                {"sum KiB", 1},
                                {"peak / bound", 3},
                                {"sum / peak", 2, " x"}}),
                .plots = {{.title = "Peak memory as a multiple of the lower bound, order serial",
                           .x = "program",
                           .y = "peak / bound",
                           .places = {},
                           .series = {},
                           .form = Plot::Form::bars,
                           .scale = Plot::Scale::linear}}};
  for (const auto& [placing, name] : placings) result.plots.front().series.push_back({name, {}});
  return result;
}

}  // namespace

Result step_memory(const TableOptions& options) {
  std::vector<std::unique_ptr<ProgramRows>> all;
  Turns turns;
  for (const NamedProgram* const program : programs) {
    const auto& rows = all.emplace_back(std::make_unique<ProgramRows>(*program, options));
    for (const auto& steps : rows->steps) {
      turns.add([&steps_of = *steps, seconds = options.turn_ms / 1e3] { return steps_of.step_time(seconds); });
    }
  }
  turns.take(options.repetitions);
  Result result = empty_result(options);
  std::size_t i = 0;
  for (const auto& rows : all) {
    result.plots.front().places.push_back(rows->program.name);
    for (std::size_t k = 0; k < rows->steps.size(); ++k, ++i) {
      const auto& [placing, workers] = rows->variants[k];
      const MemoryPlan& plan = rows->plan_of(rows->variants[k]);
      const std::size_t variant = k % std::size(placings);
      const auto peak = static_cast<double>(rows->steps[k]->peak());
      const auto bound = static_cast<double>(plan.lower_bound), sum = static_cast<double>(plan.unshared_bytes);
      result.table.add({rows->program.name, workers == 0 ? "serial" : "parallel, " + std::to_string(workers),
                        placings[variant].second, turns.median(i), turns.ratio(i, i - variant), peak / 1024,
                        bound / 1024, sum / 1024, peak / bound, sum / peak});
      if (workers == 0) result.plots.front().series[variant].values.push_back(peak / bound);
    }
  }
  return result;
}

}  // namespace windrow::perf
