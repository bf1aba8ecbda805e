// The commands that use a trained model: `windrow eval`, `windrow predict` and `windrow sample`.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "program/commands/commands.h"
#include "program/commands/conllu_text.h"
#include "program/options/arguments.h"
#include "program/options/devices.h"
#include "program/output/program.h"
#include "program/training/run_folder.h"
#include "program/training/saving.h"
#include "windrow/models/datasets.h"
#include "windrow/models/language_model.h"
#include "windrow/models/trainer.h"

namespace windrow::program {
namespace {

struct ModelArguments {
  std::string folder, data;
  DeviceFlags device;
  std::vector<std::string> texts;
  std::size_t minibatch = 64;
  PredictOptions predict;
  int workers = default_workers();
  bool json = false;
};

void add_model_flags(CLI::App& command, ModelArguments& to) {
  flag(command, "run", to.folder, "Folder of checkpoints, which windrow train --save has written", folder())
      ->required();
  flag(command, "--workers", to.workers, "Worker threads: ops that run at the same time", whole_number(1, 1024));
  add_device_flags(command, to.device);
}

/// A model that is ready for use.
struct Loaded {
  Loaded(const ModelArguments& arguments, const SavedModel& model, const SavedCheckpoint& checkpoint)
      : engine({.workers = arguments.workers}),
        device(open_device(engine, arguments.device)),
        workload(load_model(device, checkpoint, model)) {}

  Engine engine;
  const ToldOnce once{engine};
  const Device device;
  Workload workload;
};

/// Checks eval --data: an existing folder or file, or the name of files without their last ending. That ending is the
/// language of a side of parallel text, or that of a compressed file.
Check scored_data() {
  Check check = folder_or_file();
  check.read = [of_path = check.read](std::string& text) -> std::string {
    std::string why = of_path(text);
    if (why.empty()) return why;
    const std::filesystem::path path = text;
    const std::string begin = path.filename().string() + ".";
    std::error_code ignored;
    std::filesystem::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", ignored);
    for (const std::filesystem::directory_iterator end; entry != end; entry.increment(ignored)) {
      if (begin.size() > 1 && entry->path().filename().string().starts_with(begin)) return {};
    }
    return why;
  };
  return check;
}

/// In a folder, the file that validated the training is scored; a file is scored itself.
void set_data(WorkloadOptions& options, const std::filesystem::path& data) {
  options.data = data.string();
  options.validation_only = true;
  if (data.empty() || std::filesystem::is_directory(data)) return;
  options.data = data.has_parent_path() ? data.parent_path().string() : ".";
  options.validation_file = data.filename().string();
}

void evaluate(const ModelArguments& arguments) {
  const SavedCheckpoint checkpoint = newest_checkpoint(arguments.folder);
  SavedModel model = saved_model(checkpoint);
  if (!model.generated && arguments.data.empty()) {
    throw MisuseError("no --data; expected the folder with the model's data files, since it was trained on such files");
  }
  set_data(model.options, arguments.data);
  Loaded loaded(arguments, model, checkpoint);
  if (loaded.workload.validation.empty()) throw MisuseError("no validation set; expected one");
  Trainer trainer(loaded.device, loaded.workload, {.minibatch = arguments.minibatch});
  const Silence silence(arguments.json);
  print_text(model.name + ", " + data_text(model.options) + ": minibatch " + grouped(checkpoint.step) + ", on " +
             grouped(loaded.workload.validation.size()) + " validation " + loaded.workload.kind->sample + "s" +
             of_files(loaded.workload.validation_source, model.options) + "\n" + left_out_text(loaded.workload));
  const std::vector<Metric> metrics = trainer.evaluate();
  if (arguments.json) {
    Record record;
    record.set("model", model.name).set("minibatch", checkpoint.step);
    record.set("samples", loaded.workload.validation.size()).set("validation", metrics_record(metrics));
    if (trainer.validation_loss()) record.set("validation_loss", *trainer.validation_loss());
    return print_record(record);
  }
  for (const Metric& metric : metrics) print_text(metric.name + " " + metric_text(metric) + "\n");
}

Record record_of(const Prediction::Label& label, const std::vector<std::string>& names) {
  Record probabilities, record;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) probabilities.set(names[i], label.probabilities[i]);
  }
  return record.set("label", names[label.number]).set("probabilities", probabilities);
}

void print_tree(const std::string& text, const std::vector<Prediction::Word>& words) {
  std::string sentence = is_conllu_sentence(text) ? text : "# text = " + in_one_line(text) + "\n";
  for (std::size_t i = 0; i < words.size() && !is_conllu_sentence(text); ++i) {
    sentence += std::to_string(i + 1) + "\t" + words[i].form + "\t_\t_\t_\t_\t_\t_\t_\t_\n";
  }
  print_text(conllu_with_tree(sentence, words) + "\n");
}

void print_json(const std::string& text, const Prediction& prediction, const std::vector<std::string>& names) {
  Record record = prediction.label ? record_of(*prediction.label, names) : Record();
  const bool conllu = !prediction.words.empty() && is_conllu_sentence(text);
  record.set("text", conllu ? words_of_conllu(prediction.words) : text);
  if (const auto& likelihood = prediction.likelihood) {
    record.set("tokens", likelihood->tokens).set("unknown", likelihood->unknown);
    record.set("log_probability", likelihood->log_probability).set("perplexity", likelihood->perplexity());
  }
  if (prediction.text) {
    record.set("translation", prediction.text->text).set("log_probability", prediction.text->log_probability);
    return print_record(record);
  }
  RecordValue::List parts, words;
  for (const Prediction::Word& word : prediction.words) {
    words.push_back(
        Record().set("form", word.form).set("tag", word.tag).set("head", word.head).set("relation", word.relation));
  }
  if (!words.empty()) record.set("words", words);
  for (const Prediction::Part& part : prediction.parts) {
    parts.push_back(record_of(part.label, names).set("text", part.text));
  }
  if (!parts.empty()) record.set("parts", parts);
  print_record(record);
}

void print_line(const std::string& indent, const std::string& text, const Prediction::Label& label,
                const std::vector<std::string>& names) {
  print_text(indent + names[label.number] + formatted(" %.2f  ", label.probabilities[label.number]) +
             in_one_line(text) + "\n");
}

void print_likelihood(const std::string& text, const Prediction::Likelihood& of) {
  const std::string unknown = of.unknown == 0 ? "" : " (" + grouped(static_cast<std::size_t>(of.unknown)) + " unknown)";
  print_text(formatted("%.2f for %s tokens%s, perplexity %.2f  ", of.log_probability,
                       grouped(static_cast<std::size_t>(of.tokens)).c_str(), unknown.c_str(), of.perplexity()) +
             in_one_line(text) + "\n");
}

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
constexpr std::size_t most_sampled = 256;  // in a minibatch, because the rows of probabilities lie in memory
constexpr std::size_t most_lines = 64;     // in a minibatch, so that memory does not grow with the input

/// The next lines of standard input; empty at its end. Throws Error if it cannot be read.
std::vector<std::string> next_lines(std::size_t most) {
  std::vector<std::string> lines;
  for (std::string line; lines.size() < most && std::getline(std::cin, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
  }
  if (lines.empty() && std::ferror(stdin)) {
    throw Error("cannot read standard input; expected lines of text");
  }
  return lines;
}

void require_utf8(const std::string& text, std::size_t number) {
  try {
    Record().set("text", text).json();
  } catch (const MisuseError&) {
    throw DataError("input " + std::to_string(number) + ": not UTF-8; expected UTF-8 for --json");
  }
}

/// Predicts for texts and prints. Refers to a network.
class Predictor {
 public:
  Predictor(const Workload& model, const ModelArguments& arguments, const CLI::App& program)
      : network_(*model.network),
        names_(network_.labels()),
        prints_trees_(!model.kind->graphs_known),
        arguments_(arguments),
        program_(program) {}

  /// `first`: the number of the first text. Prints an error for each text that the model cannot read.
  void predict(std::span<const std::string> texts, std::size_t first) {
    std::vector<Prediction> predictions;
    try {
      if (arguments_.json) {
        for (std::size_t i = 0; i < texts.size(); ++i) require_utf8(texts[i], first + i);
      }
      PredictOptions options = arguments_.predict;
      options.first = first;
      predictions = network_.predict(texts, options);
    } catch (const DataError& error) {
      if (texts.size() == 1) return refuse(first, error.what());
      // Halves keep minibatches large if few texts are wrong.
      const std::size_t half = texts.size() / 2;
      predict(texts.first(half), first);
      predict(texts.subspan(half), first + half);
      return;
    }
    for (std::size_t i = 0; i < texts.size(); ++i) print_prediction(texts[i], predictions[i]);
  }

  /// Throws ErrorsPrinted if a text was refused.
  void finish() const {
    if (refused_) throw ErrorsPrinted();
  }

 private:
  void refuse(std::size_t number, const std::string& why) {
    refused_ = true;
    print_error(program_, why);
    if (arguments_.json) return print_record(Record().set("line", number).set("error", why));
    // Keeps output lines aligned with input lines. A tree has several lines; the first one tells its input.
    if (!prints_trees_) print("\n");
  }

  void print_prediction(const std::string& text, const Prediction& prediction) {
    if (arguments_.json) return print_json(text, prediction, names_);
    if (!prediction.words.empty()) return print_tree(text, prediction.words);
    if (prediction.text) return print_text(in_one_line(prediction.text->text) + "\n");
    if (prediction.likelihood) return print_likelihood(text, *prediction.likelihood);
    if (prediction.label) print_line("", text, *prediction.label, names_);
    if (!prediction.label && std::exchange(separate_, true)) print("\n");
    for (const Prediction::Part& part : prediction.parts) {
      print_line(prediction.label ? "  " : "", part.text, part.label, names_);
    }
  }

  Network& network_;
  const std::vector<std::string> names_;
  const bool prints_trees_;
  const ModelArguments& arguments_;
  const CLI::App& program_;
  bool refused_ = false, separate_ = false;
};

/// For an input that begins with these lines.
void predict_conllu(Predictor& predictor, std::vector<std::string> lines) {
  ConlluSentences sentences;
  std::size_t first = 1;
  const auto take = [&] {
    predictor.predict(sentences.ended(), first);
    first += sentences.ended().size();
    sentences.ended().clear();
  };
  for (; !lines.empty(); lines = next_lines(most_lines)) {
    for (std::string& line : lines) {
      sentences.add(std::move(line));
      if (sentences.ended().size() == most_lines) take();
    }
  }
  sentences.end();
  if (!sentences.ended().empty()) take();
}

struct SampleArguments : ModelArguments {
  SamplingOptions sampling;
  std::size_t lines = 10;
  std::string start;
};

void sample(const SampleArguments& arguments) {
  const SavedCheckpoint checkpoint = newest_checkpoint(arguments.folder);
  Loaded loaded(arguments, model_alone(checkpoint), checkpoint);
  SamplingOptions options = arguments.sampling;
  for (; options.first <= arguments.lines; options.first += options.texts) {
    options.texts = std::min(most_sampled, arguments.lines - options.first + 1);
    for (std::string& line : loaded.workload.network->sample_texts(arguments.start, options)) {
      print_text(in_one_line(std::move(line)) + "\n");
    }
  }
}

void predict(const ModelArguments& arguments, const CLI::App& program) {
  const SavedCheckpoint checkpoint = newest_checkpoint(arguments.folder);
  const SavedModel model = model_alone(checkpoint);
  Loaded loaded(arguments, model, checkpoint);
  Predictor predictor(loaded.workload, arguments, program);
  predictor.predict({}, 1);  // refuses a model that predicts nothing before waiting for input
  const std::span<const std::string> texts = arguments.texts;
  for (std::size_t begin = 0; begin < texts.size(); begin += most_lines) {
    predictor.predict(texts.subspan(begin, std::min(most_lines, texts.size() - begin)), begin + 1);
  }
  const std::size_t most = ::isatty(STDIN_FILENO) == 1 ? 1 : most_lines;  // a person waits for each answer
  for (std::size_t first = 1; texts.empty();) {
    std::vector<std::string> lines = next_lines(most);
    if (lines.empty()) break;
    if (first == 1 && lines.front().starts_with(byte_order_mark)) lines.front().erase(0, byte_order_mark.size());
    if (first == 1 && model.name == "parser" && begins_conllu(lines)) {
      predict_conllu(predictor, std::move(lines));
      break;
    }
    predictor.predict(lines, first);
    first += lines.size();
  }
  predictor.finish();
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App& eval = *app.add_subcommand("eval", "Scores a trained model on a validation set.");
  const auto to = std::make_shared<ModelArguments>();
  add_model_flags(eval, *to);
  flag(eval, "--data", to->data,
       "File to score, such as a test set; or a folder, whose validation file must have the same name as in training; "
       "for seq2seq, the file's name without the language",
       scored_data())
      ->default_str("generated data");
  flag(eval, "--batch", to->minibatch, "Samples per minibatch", whole_number(1, 1 << 20));
  toggle(eval, "--json", to->json, "Prints an object of JSON; shares are from 0 to 1");
  computes(eval, [to] { evaluate(*to); });
}

void add_predict(CLI::App& app) {
  CLI::App& predict_command =
      *app.add_subcommand("predict", "Applies a trained model to texts, one per line of input.");
  const auto to = std::make_shared<ModelArguments>();
  add_model_flags(predict_command, *to);
  predict_command.add_option("--text", to->texts, "Text to use instead of the lines of standard input")
      ->allow_extra_args(false)  // otherwise a text in square brackets would be taken for a list of texts
      ->type_name("TEXT:a text; several if repeated");
  toggle(predict_command, "--parts", to->predict.parts,
         "Also labels the parts of a text: phrases of a tree, inner lists");
  flag(predict_command, "--beam", to->predict.beam,
       "Width of the beam search for translations; 1 takes the best word at each step", whole_number(1, 1024));
  toggle(predict_command, "--json", to->json,
         "Prints a line of JSON for each text, with all probabilities, or with an error");
  std::string inputs = "A line of input, by model:";
  for (const WorkloadKind& kind : workload_kinds()) {
    if (!kind.input.empty()) inputs += "\n" + wrapped("  " + kind.name + ": " + kind.input, 110, 4);
  }
  predict_command.footer(inputs);
  computes(predict_command, [to, &app] { predict(*to, app); });
}

void add_sample(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("sample", "Samples sentences from a trained language model, one per line.");
  const auto to = std::make_shared<SampleArguments>();
  add_model_flags(command, *to);
  flag(command, "--lines", to->lines, "Number of sentences to sample", whole_number(1, 1 << 30));
  flag(command, "--seed", to->sampling.seed, "Seed of the draws", whole_number(0, UINT32_MAX));
  flag(command, "--temperature", to->sampling.temperature, "Sampling temperature; 0 takes the most probable word",
       number());
  flag(command, "--max-words", to->sampling.longest, "Maximum length of a sentence, in words",
       whole_number(1, 1 << 20));
  command.add_option("--start", to->start, "Words that each sentence begins with")->type_name("TEXT:words");
  computes(command, [to] { sample(*to); });
}

}  // namespace windrow::program
