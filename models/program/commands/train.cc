#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "program/commands/commands.h"
#include "program/options/devices.h"
#include "program/options/training_flags.h"
#include "program/output/program.h"
#include "program/output/progress.h"
#include "program/signals.h"
#include "program/training/members.h"
#include "program/training/reporting.h"
#include "program/training/run_folder.h"
#include "program/training/saving.h"
#include "windrow/batching/runner.h"
#include "windrow/comm/mpi.h"
#include "windrow/models/saved_model.h"
#include "windrow/models/trainer.h"

namespace windrow::program {
namespace {

/// Per thread. A file with this many ops of two threads has about 50 MB.
constexpr std::uint64_t most_traced_ops = std::uint64_t{1} << 16;

struct Arguments {
  std::string model, policy = "pool", schedule = "level";
  DeviceFlags device;
  MemberFlags members;
  WorkloadOptions workload;
  TrainerOptions trainer;
  TrainingFlags training;
  SavingFlags saving;
  std::string trace, report, vectors, init_from;
  int epochs = 8, patience = 0, workers = default_workers();
  bool json = false, compare = false, freeze_embedding = false;
};

void add_flags(CLI::App& train, Arguments& to) {
  flag(train, "model", to.model, "Model to train", one_of(workload_names()))->required();
  add_workload_flags(train, to.workload);
  train.get_option("--samples")->excludes(train.get_option("--data"));  // which is always used as a whole
  flag(train, "--dropout", to.workload.dropout.element,
       "Rate of dropout of words and states; " + for_models(&WorkloadKind::takes_dropout), fraction());
  flag(train, "--word-dropout", to.workload.dropout.word, "Rate of dropout of whole words; for the same models",
       fraction());
  flag(train, "--vectors", to.vectors,
       "Pretrained word vectors, in the text format of GloVe or word2vec; " + for_models(&WorkloadKind::embeds_words),
       existing_file())
      ->default_str("");
  toggle(train, "--freeze-embedding", to.freeze_embedding,
         "Do not train the word embedding, also after --resume; for the same models");
  flag(train, "--batch", to.trainer.minibatch, "Samples per minibatch", whole_number(1, 1 << 20));
  flag(train, "--epochs", to.epochs, "Number of epochs", whole_number(1, 1 << 20));
  flag(train, "--patience", to.patience, "Early stopping: epochs without a better score; 0: never stop early",
       whole_number(0, 1 << 20));
  add_training_flags(train, to.training);
  add_saving_flags(train, to.saving);
  add_init_flag(train, to.init_from);
  flag(train, "--workers", to.workers, "Worker threads: ops that run at the same time", whole_number(1, 1024));
  flag(train, "--policy", to.policy, "How the engine runs ops", one_of({"serial", "pool", "per_device", "chaos"}));
  flag(train, "--schedule", to.schedule, "How vertices are grouped into batches", one_of(schedule_policies()));
  add_device_flags(train, to.device);
  add_memory_flag(train, to.device);
  add_member_flags(train, to.members);
  flag(train, "--trace", to.trace,
       "Writes a timeline for ui.perfetto.dev: of each thread, the first " + grouped(most_traced_ops) + " ops",
       new_file())
      ->default_str("");
  flag(train, "--report", to.report, "Folder for report.html: curves, throughput and times, for a browser",
       new_folder());
  toggle(train, "--compare", to.compare, "Also train without batching, and print the speedup");
  toggle(train, "--json", to.json,
         "Prints a line of JSON for each epoch, and nothing else; --save also writes them to epochs.jsonl");
  train.footer(
      train.get_footer() + "\n\n" + running_policies_text() + "\n" + schedule_policies_text() +
      "\nThe training loss is the mean over all labels of an epoch. The validation set is evaluated after each\n"
      "epoch.");
}

/// Continues training, alternately batched and one vertex at a time, so that the machine's load affects both alike.
void compare(Trainer& trainer, const std::string& unit) {
  constexpr std::size_t samples = 512;
  double batched = 0, unbatched = 0;  // the best of three
  for (int i = 0; i < 3; ++i) {
    batched = std::max(batched, trainer.train(samples).units_per_second());
    unbatched = std::max(unbatched, trainer.train_some_unbatched().units_per_second());
  }
  print("\n                     %10s\n", (unit + "/s").c_str());
  print("batched                 %7.0f\n", batched);
  print("one vertex at a time    %7.0f  (same kernels, one row per call)\n", unbatched);
  print("speedup                 %7.1f\n", batched / unbatched);
}

/// The line for epoch `number` of `of` epochs.
ProgressLine progress_line(std::size_t number, std::size_t of, const Trainer::Pass& so_far, const Workload& workload) {
  const auto all = static_cast<double>(workload.training.size()), done = static_cast<double>(so_far.samples);
  const double samples_left = all - done + static_cast<double>(of - number) * all;
  return {.epoch = number,
          .epochs = of,
          .samples = so_far.samples,
          .of = workload.training.size(),
          .loss = so_far.loss,
          .units_per_second = so_far.units_per_second(),
          .unit = workload.kind->unit,
          .seconds_left = so_far.seconds * samples_left / done};
}

/// The files and reports that outlast the training.
struct Keeping {
  Saving& saving;
  Reporting& reporting;
  Scores& scores;
  std::string folder;  ///< of --save; empty for a member that saves nothing
  bool leads;          ///< whether this member prints
};

void require_scores(const Arguments& arguments, const Workload& workload) {
  if (!workload.validation.empty()) return;
  for (const auto& [flag, used] :
       {std::pair("--keep-best", arguments.saving.keep_best), std::pair("--patience", arguments.patience > 0),
        std::pair("--rate-schedule plateau", arguments.training.rate_schedule == "plateau")}) {
    if (used) throw MisuseError(std::string(flag) + ": no validation set; expected one");
  }
}

/// Whether --patience ends the training; if so, prints a line.
bool lost_patience(const Arguments& arguments, const Scores& scores) {
  if (arguments.patience == 0 || scores.epochs_without_improvement() < arguments.patience) return false;
  print("stopped after %s without a better score\n",
        counted(static_cast<std::size_t>(arguments.patience), "epoch").c_str());
  return true;
}

/// Trains until the last epoch has ended, or a signal stops it. Returns the signal, or 0.
int train_epochs(const Arguments& arguments, Trainer& trainer, Workload& workload, Keeping& keeping) {
  Saving& saving = keeping.saving;
  Scores& scores = keeping.scores;
  const auto epochs = static_cast<std::size_t>(arguments.epochs);
  if (trainer.epochs() >= epochs) {
    print("all %zu epoch%s are done; more with --epochs\n", epochs, epochs == 1 ? "" : "s");
    return 0;
  }
  if (lost_patience(arguments, scores)) return 0;  // it had lost patience before this resumption
  const EpochTable table(trainer, workload);
  table.print_head();
  Progress progress;
  while (trainer.epochs() < epochs) {
    const Trainer::Pass pass = trainer.train_epoch([&](const Trainer::Pass& so_far) {
      progress.show([&](std::size_t width) {
        return to_string(progress_line(trainer.epochs() + 1, epochs, so_far, workload), width);
      });
      return saving.after_step(trainer, scores);
    });
    if (trainer.in_epoch()) saving.after_stop(trainer, scores);
    progress.clear();
    keeping.reporting.trained(trainer, pass);
    if (trainer.in_epoch()) return saving.stopped(trainer);
    const std::vector<Metric> metrics = trainer.evaluate();
    if (!workload.validation.empty()) keeping.reporting.evaluated(trainer, metrics);
    if (!workload.validation.empty()) scores.report(metrics.front(), trainer.optimiser());
    const Record record = epoch_record(trainer, pass, metrics, workload);
    // Before the checkpoint, since a resumed training drops later epochs.
    if (!keeping.folder.empty()) add_epoch(keeping.folder, record);
    saving.after_epoch(trainer, scores);  // first, since output may end this program
    if (arguments.json && keeping.leads) {
      print_record(record);
    } else {
      table.print_epoch(trainer.epochs(), pass, metrics);
    }
    if (saving.stops(trainer)) return saving.stopped(trainer);
    if (lost_patience(arguments, scores)) break;
  }
  return 0;
}

/// Sets the word embedding to the vectors of --vectors. Reads no vectors if a checkpoint is loaded after it, because
/// that has the embedding.
void set_embedding(const Arguments& arguments, Workload& workload, bool several) {
  if (arguments.vectors.empty() && !arguments.freeze_embedding) return;
  if (!workload.embedding) {
    throw MisuseError(arguments.model +
                      ": --vectors or --freeze-embedding; expected neither, because the model embeds "
                      "no words");
  }
  if (arguments.vectors.empty() || arguments.saving.resume) return;
  if (several && std::filesystem::is_fifo(arguments.vectors)) {
    throw MisuseError("--vectors: a pipe; expected a file, since each of several members reads it");
  }
  Progress progress;
  std::error_code of_pipe;  // a pipe has no size, so no progress is shown
  const std::uint64_t size = std::max<std::uint64_t>(std::filesystem::file_size(arguments.vectors, of_pipe), 1);
  const WordVectors found = set_word_vectors(workload, arguments.vectors, [&](std::uint64_t bytes) {
    progress.show(
        [&](std::size_t) { return "reading " + arguments.vectors + ": " + std::to_string(100 * bytes / size) + " %"; });
  });
  progress.clear();
  const auto text = [](std::int64_t number) { return grouped(static_cast<std::size_t>(number)); };
  print_text(arguments.vectors + ": vectors of " + text(found.rows) + " of the " + text(found.of) + " words; " +
             text(found.words) + " in the file\n");
  if (found.announced && *found.announced != found.words + found.left_out) {
    print_text(arguments.vectors + ": the first line says " + text(*found.announced) + " words\n");
  }
  if (found.left_out > 0) {
    print_text("left out of the vectors: " + counted(static_cast<std::size_t>(found.left_out), "line") +
               ", the first one is " + found.first_left_out + "\n");
  }
}

std::string outcome_of(const Trainer& trainer, int signal) {
  if (signal != 0) return "Stopped by a signal after minibatch " + grouped(trainer.minibatches());
  return "Ended after epoch " + grouped(trainer.epochs());
}

/// Throws the error again, with advice if the training has diverged.
[[noreturn]] void rethrow(const std::exception_ptr& error, const Trainer& trainer) {
  if (!is<NotFiniteError>(error)) std::rethrow_exception(error);
  throw Error("the loss is not finite at minibatch " + grouped(trainer.failed_minibatch()) +
              "; try a lower --rate or --clip-norm");
}

/// Writes the report of a failed training, because its curves help to find the cause. A failure here is not reported:
/// the failure of the training matters more.
void report_failure(Reporting& reporting, const Trainer& trainer) {
  try {
    reporting.write(trainer, "Failed after minibatch " + grouped(trainer.minibatches()));
  } catch (const std::exception&) {
  }
}

void save_trace(Engine& engine, const std::string& file) {
  engine.trace().stop();
  engine.trace().save(file);
  const std::uint64_t left_out = engine.trace().summary().left_out;
  if (left_out == 0) return;
  print("trace: %s: the first %s ops of each thread; %s more are left out\n", file.c_str(),
        grouped(most_traced_ops).c_str(), grouped(left_out).c_str());
}

/// Trains as one member. Returns the signal that stopped it, or 0.
int train_member(const CLI::App& command, Arguments arguments, Engine& engine, const Member& member) {
  require_same_flags(command, member);
  const Silence silence(arguments.json);
  if (!member.leads) arguments.report = arguments.trace = "";
  std::optional<Reporting> own_reporting;
  std::optional<Saving> own_saving;
  std::optional<Workload> own_workload;
  Record flags;
  std::int64_t initialised = 0, resumed = 0;
  TrainerOptions& options = arguments.trainer;
  together(member, [&] {
    require_used(arguments.training);
    if (arguments.json && arguments.compare) throw MisuseError("--json and --compare; expected one of both");
    own_reporting.emplace(arguments.report);
    own_saving.emplace(arguments.saving, member.leads);
    own_workload = make_workload(arguments.model, member.device, arguments.workload);
    if (!arguments.saving.folder.empty()) {
      own_saving->contents.model = model_record(*own_workload);
      own_saving->contents.data = own_workload->network->fingerprint();
    }
    require_scores(arguments, *own_workload);
    flags = training_record(arguments.training, *own_workload->kind, static_cast<std::uint64_t>(arguments.epochs));
    flags.set("batch", options.minibatch).set("schedule", arguments.schedule);
    own_saving->contents.flags = flags;
    set_training(options, arguments.training, *own_workload, static_cast<std::uint64_t>(arguments.epochs));
    options.seed = arguments.workload.seed;
    options.runner.schedule = parse_schedule_policy(arguments.schedule);
    options.group = member.group;
    set_members(options, arguments.members);
    own_reporting->watch(options, member.device);
    set_embedding(arguments, *own_workload, member.group.has_value());
    if (!arguments.init_from.empty()) initialised = initialise(*own_workload, arguments.init_from, host_device(engine));
    if (member.group && arguments.compare) throw MisuseError("--compare with several members; expected one of both");
  });
  Reporting& reporting = *own_reporting;
  Saving& saving = *own_saving;
  Workload& workload = *own_workload;
  require_same_data(workload, member);
  require_equal(initialised, member, "begins with another checkpoint", "the same one of --init-from");
  std::optional<Trainer> own_trainer;
  together(member, [&] { own_trainer.emplace(member.device, workload, options); });
  Trainer& trainer = *own_trainer;
  if (arguments.freeze_embedding) workload.parameters->freeze(workload.embedding->table);
  const std::size_t size = workload.training.size();
  const std::string about = data_text(arguments.workload) + ": training on " + counted(size, workload.kind->sample) +
                            of_files(workload.training_source, arguments.workload) + ", validating on " +
                            grouped(workload.validation.size()) +
                            of_files(workload.validation_source, arguments.workload);
  const std::string members = members_text(arguments.members, member);
  print_text(arguments.model + ", " + about + "\n" + left_out_text(workload) + members +
             (members.empty() ? "\n" : "\n\n"));
  if (!arguments.trace.empty()) {
    engine.trace().save(arguments.trace);  // so that it fails now, and not after the training
    engine.trace().start({.max_ops_per_thread = most_traced_ops});
  }
  Scores scores(arguments.training);
  together(member, [&] { resumed = saving.resume(trainer, scores); });
  Keeping keeping{saving, reporting, scores, member.leads ? arguments.saving.folder : "", member.leads};
  if (!keeping.folder.empty()) save_options(command, keeping.folder, workload);
  require_equal(resumed, member, "resumes from another checkpoint", "one folder of --save, or equal ones");
  reporting.set_flags(command, workload.options, flags.at("rate").number());
  reporting.begin({about + ".", arguments.workers, members}, workload, trainer, options);
  if (!keeping.folder.empty()) reporting.set_epochs(keep_epochs(keeping.folder, trainer.epochs()), workload);
  int signal = 0;
  Signals::begin_training();
  try {
    signal = train_epochs(arguments, trainer, workload, keeping);
  } catch (...) {
    report_failure(reporting, trainer);
    rethrow(std::current_exception(), trainer);
  }
  if (!arguments.trace.empty()) save_trace(engine, arguments.trace);
  reporting.write_if_trained(trainer, outcome_of(trainer, signal));
  Signals::end_training();
  if (signal == 0) signal = noted_signal();  // it came after the training
  if (signal == 0 && arguments.compare) compare(trainer, workload.kind->unit);
  return signal;
}

/// Refuses a process without --comm under mpirun: several independent trainings are hardly intended, and processes with
/// --comm would wait for this one.
void refuse_processes_apart(const CLI::App& command) {
  const int together = MpiWorld::started().size;
  if (together == 1 || command.get_option("--comm")->count() > 0) return;
  throw MisuseError(std::to_string(together) +
                    " processes were started together, without --comm; expected --comm mpi, or --comm none if each of "
                    "them is to train alone");
}

/// Returns the signal that stopped it, or 0.
int train_model(const CLI::App& command, const Arguments& arguments) {
  refuse_processes_apart(command);
  Engine engine({.policy = parse_policy(arguments.policy), .workers = arguments.workers});
  const ToldOnce once(engine);
  std::optional<Signals> signals;
  if (!arguments.report.empty() || !arguments.saving.folder.empty() || !arguments.trace.empty()) signals.emplace();
  return run_members(engine, arguments.device, arguments.members,
                     [&](const Member& member) { return train_member(command, arguments, engine, member); });
}

}  // namespace

void add_train(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& train = *app.add_subcommand(
      "train", "Trains a model and prints the training loss and the validation scores of each epoch.");
  add_flags(train, *arguments);
  computes(train, [arguments, &train] {
    if (const int signal = train_model(train, *arguments)) end_by(signal);
  });
}

}  // namespace windrow::program
