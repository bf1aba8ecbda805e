// Checkpoints of a trainer.
#include <algorithm>
#include <bit>
#include <locale>
#include <sstream>
#include <string>
#include <utility>

#include "training/loss_sum.h"
#include "windrow/models/trainer.h"
#include "windrow/training/file_error.h"

namespace windrow {
namespace {

const std::string order = "trainer/order", random_state = "trainer/random";

NamedArray named(const std::string& name, std::span<const std::int64_t> elements) {
  return {name, {elements.size()}, elements};
}

std::vector<std::int64_t> read(const TensorFile& file, const std::string& name) {
  const StoredTensor& tensor = file.at(name);
  if (tensor.shape.size() != 1)
    throw FileError(file.path().string() + ": tensor '" + name + "'; expected one dimension");
  std::vector<std::int64_t> elements(tensor.shape.front());
  file.read(name, tensor.shape, std::span(elements));
  return elements;
}

/// Whether these are the numbers of `size` samples, each once.
bool is_order(const std::vector<std::int64_t>& numbers, std::size_t size) {
  std::vector<char> seen(size, 0);
  for (const std::int64_t number : numbers) {
    if (number < 0 || static_cast<std::size_t>(number) >= size ||
        std::exchange(seen[static_cast<std::size_t>(number)], 1)) {
      return false;
    }
  }
  return numbers.size() == size;
}

// The random number generator as numbers.

std::vector<std::int64_t> numbers_of(const std::mt19937_64& random) {
  std::stringstream text;  // the state as words, by the standard
  text.imbue(std::locale::classic());
  text << random;
  std::vector<std::int64_t> numbers;
  for (std::uint64_t word; text >> word;) numbers.push_back(static_cast<std::int64_t>(word));
  return numbers;
}

/// Throws MisuseError for numbers that are no generator.
std::mt19937_64 random_of(std::span<const std::int64_t> numbers) {
  std::stringstream text;
  text.imbue(std::locale::classic());
  for (const std::int64_t number : numbers) text << static_cast<std::uint64_t>(number) << ' ';
  std::mt19937_64 random;
  text >> random;
  if (!text || numbers_of(random).size() != numbers.size()) {
    throw MisuseError("a random number generator of " + std::to_string(numbers.size()) +
                      " words; expected the state of one");
  }
  return random;
}

}  // namespace

double Trainer::prepare_save() {
  learner_->forget();
  epoch_loss_->finish();
  if (!parallel_) return epoch_loss_->sum();
  double sum = 0;
  const auto losses = parallel_->communicator().exchange(std::vector{std::bit_cast<std::int64_t>(epoch_loss_->sum())});
  for (const std::int64_t loss : losses) sum += std::bit_cast<double>(loss);
  return sum;
}

void Trainer::save(CheckpointWriter& writer, Record document) {
  const double loss = prepare_save();
  const Snapshot snapshot({*workload_.parameters, &optimiser_, averages_ ? &*averages_ : nullptr});
  CheckpointContents contents = snapshot.contents(workload_.parameters->minibatches());
  const std::vector<std::int64_t> numbers(order_.begin(), order_.end()), state = numbers_of(random_);
  contents.tensors.push_back(named(order, numbers));
  contents.tensors.push_back(named(random_state, state));
  document.set("training", contents.document.at("training"));
  document.set("trainer", Record()
                              .set("epochs", epochs_)
                              .set("position", next_)
                              .set("samples", epoch_.samples)
                              .set("units", epoch_.units)
                              .set("vertices", epoch_.vertices)
                              .set("labels", epoch_.labels)
                              .set("flops", epoch_.flops)
                              .set("loss", loss)
                              .set("seconds", epoch_.seconds));
  contents.document = std::move(document);
  writer.write(contents);
}

void Trainer::help_save() {
  prepare_save();
  optimiser_.tensors_of_all();
}

void Trainer::resume(const SavedCheckpoint& checkpoint) {
  const TensorFile& file = checkpoint.tensors;
  restore(checkpoint, {*workload_.parameters, &optimiser_, averages_ ? &*averages_ : nullptr});
  const Record& trainer = checkpoint.document.at("trainer").record();
  const auto refuse = [&](const std::string& what) { throw FileError(file.path().string() + ": " + what); };
  const std::vector<std::int64_t> numbers = read(file, order);
  const std::uint64_t position = trainer.at("position").count();
  if (!is_order(numbers, order_.size()) || position > numbers.size()) {
    refuse("an order of " + std::to_string(numbers.size()) + " training samples; expected one of the " +
           std::to_string(order_.size()) + " that there are");
  }
  try {
    random_ = random_of(read(file, random_state));
  } catch (const MisuseError& error) {
    refuse(error.what());
  }
  order_.assign(numbers.begin(), numbers.end());
  next_ = position;
  epochs_ = trainer.at("epochs").count();
  epoch_ = {.samples = trainer.at("samples").count(),
            .units = trainer.at("units").integer(),
            .vertices = trainer.at("vertices").integer(),
            .labels = trainer.at("labels").integer(),
            .flops = trainer.at("flops").number(),
            .seconds = trainer.at("seconds").number()};
  const bool first = !parallel_ || parallel_->communicator().rank() == 0;
  epoch_loss_->begin_with(first ? trainer.at("loss").number() : 0, first ? epoch_.labels : 0);
}

}  // namespace windrow
