#include "saving.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include "flags.h"
#include "program.h"
#include "windrow/training/file_error.h"

namespace windrow::program {
namespace {

const RecordFormat format{.name = "windrow training", .newest_version = 1};

volatile std::sig_atomic_t signal_that_came = 0;

extern "C" void note_signal(int signal) { signal_that_came = signal; }

/// With SA_RESETHAND a second signal ends the program.
void handle_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | (handler == SIG_DFL ? 0 : SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

std::string text_of(const RecordValue& value) {
  Record record;
  record.set("value", value);
  const std::string json = record.json(JsonStyle::compact);
  const std::size_t begin = json.find_first_not_of(' ', json.find(':') + 1);
  return json.substr(begin, json.size() - begin - 1);
}

/// Throws FileError unless both are of one model.
void require_same(const Record& saved, const Record& wanted, const std::string& place) {
  for (const auto& [name, value] : wanted.values()) {
    if (!saved.contains(name)) throw FileError(place + ": a model without " + name + "; expected " + text_of(value));
    const RecordValue& other = saved.at(name);
    if (other == value) continue;
    if (name == "sizes") require_same(other.record(), value.record(), place);
    throw FileError(place + ": a model with " + name + " " + text_of(other) + "; expected " + text_of(value) +
                    ", as the flags say");
  }
}

}  // namespace

void add_saving_flags(CLI::App& command, SavingFlags& to) {
  flag(command, "--save", to.folder, "Folder for checkpoints, after each epoch", new_folder());
  flag(command, "--save-every", to.every, "Also saves after so many minibatches; 0: only after epochs",
       whole_number(0, 1 << 30));
  flag(command, "--keep", to.keep, "Checkpoints to keep: the newest ones", whole_number(1, 1 << 20));
  command
      .add_flag("--resume", to.resume, "Goes on from the newest checkpoint in the folder of --save, with the same bits")
      ->disable_flag_override();
}

Record model_record(const std::string& model, const WorkloadOptions& options) {
  const WorkloadKind& kind = workload_kind(model);
  Record sizes;
  for (const WorkloadSize& size : kind.sizes) {
    const auto found = options.sizes.find(size.name);
    sizes.set(size.name, found == options.sizes.end() ? size.preset : found->second);
  }
  Record record;
  record.set("name", model).set("sizes", sizes).set("seed", options.seed);
  record.set("dropout", options.dropout.element).set("word_dropout", options.dropout.word);
  if (!kind.cells.empty()) record.set("cell", options.cell.empty() ? kind.cells.front() : options.cell);
  return record;
}

Saving::Saving(const SavingFlags& flags, Record model) : flags_(flags), model_(std::move(model)) {
  if (flags.folder.empty()) {
    if (flags.resume) throw MisuseError("--resume: no --save; expected the folder of the checkpoints");
    if (flags.every > 0) throw MisuseError("--save-every: no --save; expected the folder for the checkpoints");
    return;
  }
  writer_.emplace(flags.folder, CheckpointWriterOptions{.keep = flags.keep});
  if (!flags.resume && !CheckpointFolder(flags.folder).steps().empty()) {
    throw FileError(flags.folder + ": has checkpoints of another training; expected --resume, or another folder");
  }
  signal_that_came = 0;
  handle_signals(note_signal);
}

Saving::~Saving() {
  if (writer_) handle_signals(SIG_DFL);
}

void Saving::resume(Trainer& trainer, Scores& scores) {
  if (!flags_.resume) return;
  const NewestCheckpoint newest = CheckpointFolder(flags_.folder).newest();
  for (const std::string& line : newest.skipped) print("skipped %s\n", line.c_str());
  if (!newest.checkpoint) throw FileError(flags_.folder + ": no checkpoint; expected one to go on from");
  const SavedCheckpoint& checkpoint = *newest.checkpoint;
  checkpoint.document.require_format(format);
  require_same(checkpoint.document.at("model").record(), model_, checkpoint.tensors.path().string());
  trainer.resume(checkpoint);
  scores.set(checkpoint.document.at("scores").record());
  saved_ = checkpoint.step;
  print("going on from minibatch %s, in %s\n\n", grouped(checkpoint.step).c_str(),
        checkpoint.tensors.path().string().c_str());
}

void Saving::save(Trainer& trainer, const Scores& scores) {
  Record document;
  document.set_format(format).set("model", model_).set("scores", scores.record());
  trainer.save(*writer_, std::move(document));
  saved_ = trainer.minibatches();
}

Trainer::Then Saving::after_step(Trainer& trainer, const Scores& scores) {
  const bool stop = signal_that_came != 0;
  if (writer_ && (stop || (flags_.every > 0 && trainer.minibatches() - saved_ >= flags_.every))) save(trainer, scores);
  return stop ? Trainer::Then::stop : Trainer::Then::go_on;
}

int Saving::after_epoch(Trainer& trainer, const Scores& scores) {
  if (!writer_) return 0;
  save(trainer, scores);
  return signal_that_came == 0 ? 0 : stopped();
}

int Saving::stopped() {
  const int signal = signal_that_came;
  print("stopped by %s behind minibatch %s; --resume goes on from there\n", signal == SIGINT ? "SIGINT" : "SIGTERM",
        grouped(saved_).c_str());
  return signal;
}

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();  // nobody returns from it
}

}  // namespace windrow::program
