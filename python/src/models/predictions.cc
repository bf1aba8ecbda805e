// What models predict.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "models/models.h"

namespace windrow::python {
namespace {

using SharedNames = std::shared_ptr<const std::vector<std::string>>;

/// A label with the names of all labels.
struct LabelObject {
  SharedNames names;
  Prediction::Label label;

  const std::string& name() const { return names->at(label.number); }
  double probability() const { return label.probabilities.at(label.number); }
};

struct PredictionObject {
  SharedNames names;
  Prediction prediction;
};

/// The text of what was predicted.
std::string describe(const PredictionObject& of) {
  const Prediction& prediction = of.prediction;
  if (prediction.label) return "'" + LabelObject{of.names, *prediction.label}.name() + "'";
  if (prediction.text) return "'" + prediction.text->text + "'";
  if (!prediction.words.empty()) return std::to_string(prediction.words.size()) + " words with heads";
  if (prediction.likelihood) return "perplexity " + std::to_string(prediction.likelihood->perplexity());
  return std::to_string(prediction.parts.size()) + " parts";
}

struct PartObject {
  std::string text;
  LabelObject label;
};

void bind_parts(nb::module_& m) {
  nb::class_<LabelObject>(m, "Label", "A label that a model has chosen.")
      .def_prop_ro("name", &LabelObject::name)
      .def_prop_ro(
          "number", [](const LabelObject& of) { return of.label.number; },
          "Its number: the index in `probabilities` and in Model.labels.")
      .def_prop_ro("probability", &LabelObject::probability, "How probable it is, from 0 to 1.")
      .def_prop_ro(
          "probabilities", [](const LabelObject& of) { return of.label.probabilities; },
          "The probabilities of all labels, in the order of Model.labels.")
      .def("__repr__", [](const LabelObject& of) { return "<windrow.Label '" + of.name() + "'>"; });
  nb::class_<PartObject>(m, "LabelledPart", "A part of a text, such as a phrase or a word, with its label.")
      .def_ro("text", &PartObject::text)
      .def_ro("label", &PartObject::label)
      .def("__repr__",
           [](const PartObject& of) { return "<windrow.LabelledPart '" + of.text + "': '" + of.label.name() + "'>"; });
  nb::class_<Prediction::Word>(m, "ParsedWord", "A word of a sentence whose dependencies a model has found.")
      .def_ro("form", &Prediction::Word::form)
      .def_ro("tag", &Prediction::Word::tag)
      .def_ro("head", &Prediction::Word::head, "The number of its head, from 1; 0 is the root.")
      .def_ro("relation", &Prediction::Word::relation)
      .def("__repr__", [](const Prediction::Word& of) {
        return "<windrow.ParsedWord '" + of.form + "', " + of.relation + " of " + std::to_string(of.head) + ">";
      });
  nb::class_<Prediction::Text>(m, "PredictedText", "A text that a model has written, such as a translation.")
      .def_ro("text", &Prediction::Text::text)
      .def_ro("log_probability", &Prediction::Text::log_probability, "The natural logarithm of its probability.")
      .def("__repr__", [](const Prediction::Text& of) { return "<windrow.PredictedText '" + of.text + "'>"; });
  nb::class_<Prediction::Likelihood>(m, "Likelihood", "How probable a language model finds a sentence.")
      .def_ro("tokens", &Prediction::Likelihood::tokens, "The number of words, plus one for the end of the sentence.")
      .def_ro("unknown", &Prediction::Likelihood::unknown, "The number of words that the model does not know.")
      .def_ro("log_probability", &Prediction::Likelihood::log_probability,
              "The natural logarithm of the probability of all tokens.")
      .def_prop_ro("perplexity", &Prediction::Likelihood::perplexity)
      .def("__repr__", [](const Prediction::Likelihood& of) {
        return "<windrow.Likelihood of " + counted(static_cast<std::uint64_t>(of.tokens), "token", "tokens") +
               ", perplexity " + std::to_string(of.perplexity()) + ">";
      });
}

}  // namespace

nb::list predictions_of(std::vector<Prediction> predictions, std::vector<std::string> labels) {
  const auto names = std::make_shared<const std::vector<std::string>>(std::move(labels));
  nb::list all;
  for (Prediction& one : predictions) all.append(PredictionObject{names, std::move(one)});
  return all;
}

void bind_predictions(nb::module_& m) {
  bind_parts(m);
  nb::class_<PredictionObject>(
      m, "Prediction",
      "What a model predicts for one text. Attributes that a model does not predict are None or empty.")
      .def_prop_ro(
          "label",
          [](const PredictionObject& of) -> std::optional<LabelObject> {
            if (!of.prediction.label) return {};
            return LabelObject{of.names, *of.prediction.label};
          },
          "The label of the text as a whole.")
      .def_prop_ro(
          "parts",
          [](const PredictionObject& of) {
            std::vector<PartObject> parts;
            for (const Prediction::Part& part : of.prediction.parts) {
              parts.push_back({part.text, {of.names, part.label}});
            }
            return parts;
          },
          "The parts that have labels of their own.")
      .def_prop_ro(
          "words", [](const PredictionObject& of) { return of.prediction.words; }, "Words with their heads.")
      .def_prop_ro(
          "text", [](const PredictionObject& of) { return of.prediction.text; }, "The text that the model writes.")
      .def_prop_ro("likelihood", [](const PredictionObject& of) { return of.prediction.likelihood; })
      .def("__repr__", [](const PredictionObject& of) { return "<windrow.Prediction: " + describe(of) + ">"; });
}

}  // namespace windrow::python
