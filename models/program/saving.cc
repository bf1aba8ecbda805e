#include "saving.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "flags.h"
#include "program.h"
#include "windrow/training/file_error.h"

namespace windrow::program {
namespace {

volatile std::sig_atomic_t signal_that_came = 0;
std::atomic<std::int64_t> came_at{0};  // ms; written and read by the handler

/// Some senders, such as timeout, send a signal twice in a row. A person who is impatient needs longer.
extern "C" void note_signal(int signal) {
  constexpr std::int64_t twice_in_a_row = 500;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (signal_that_came == 0) {
    came_at = ms;
    signal_that_came = signal;
  } else if (ms - came_at > twice_in_a_row) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

void add_saving_flags(CLI::App& command, SavingFlags& to) {
  flag(command, "--save", to.folder, "Folder for checkpoints, after each epoch", new_folder());
  flag(command, "--save-every", to.every, "Also saves after so many minibatches; 0: only after epochs",
       whole_number(0, 1 << 30));
  flag(command, "--keep", to.keep, "Checkpoints to keep: the newest ones", whole_number(1, 1 << 20));
  command
      .add_flag("--resume", to.resume,
                "Continues from the newest checkpoint in the folder of --save, with the same bits")
      ->disable_flag_override();
}

Saving::Saving(const SavingFlags& flags) : flags_(flags) {
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
  const SavedCheckpoint checkpoint = newest_checkpoint(flags_.folder);
  checkpoint.document.require_format(training_format);
  require_same_model(checkpoint.document.at("model").record(), model_, checkpoint.tensors.path().string());
  trainer.resume(checkpoint);
  scores.set(checkpoint.document.at("scores").record());
  saved_ = checkpoint.step;
  print("continuing from minibatch %s, in %s\n\n", grouped(checkpoint.step).c_str(),
        checkpoint.tensors.path().string().c_str());
}

void Saving::save(Trainer& trainer, const Scores& scores) {
  Record document;
  document.set_format(training_format).set("model", model_).set("scores", scores.record());
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
  print("stopped by %s after minibatch %s; --resume continues from there\n", signal == SIGINT ? "SIGINT" : "SIGTERM",
        grouped(saved_).c_str());
  return signal;
}

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::abort();  // nobody returns from it
}

}  // namespace windrow::program
