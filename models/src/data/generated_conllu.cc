// Dependency sentences from a small grammar, about as long as those of the English Web Treebank.
#include <algorithm>
#include <array>

#include "data/draws.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// Kinds of words. The form of a word determines its kind, and thus everything that the grammar uses.
enum WordKind : std::size_t {
  noun,
  name,
  pronoun,
  determiner,
  adjective,
  adverb,
  auxiliary,
  particle,
  conjunction,
  subjunction,
  of_noun,  // prepositions
  of_verb,
  intransitive,  // verbs
  transitive,
  control,
  kinds
};
struct Forms {
  const char* tag;
  int count;
};
constexpr std::array<Forms, kinds> forms = {{{"NOUN", 3000},
                                             {"PROPN", 2000},
                                             {"PRON", 8},
                                             {"DET", 5},
                                             {"ADJ", 800},
                                             {"ADV", 150},
                                             {"AUX", 6},
                                             {"PART", 1},
                                             {"CCONJ", 2},
                                             {"SCONJ", 4},
                                             {"ADP", 4},
                                             {"ADP", 10},
                                             {"VERB", 300},
                                             {"VERB", 600},
                                             {"VERB", 30}}};

class ConlluGenerator {
 public:
  explicit ConlluGenerator(std::uint64_t seed) : draws_(seed) {
    for (const Forms& of_kind : forms) ranks_.emplace_back(of_kind.count, 2);
  }

  std::string sentence() {
    words_.clear();
    const int verb = clause();
    attach(verb, {0, "root"});
    if (draws_.chance(0.15)) second_clause(verb);
    words_.push_back({.form = ".", .tag = "PUNCT"});
    attach(static_cast<int>(words_.size()), {verb, "punct"});
    return text();
  }

 private:
  struct Word {
    std::string form;
    const char* tag;
    Arc arc{};
    std::vector<Arc> enhanced{};
    int conjunct = 0;  // a word that depends on everything that this word depends on
  };

  Word& word(int number) { return words_[static_cast<std::size_t>(number) - 1]; }

  /// Appends a word, and returns its number.
  int add(WordKind kind) {
    const int rank = ranks_[kind].rank(draws_.share());
    const std::string form = spelled(rank * static_cast<int>(kinds) + static_cast<int>(kind));
    words_.push_back({.form = kind == name ? capitalised(form) : form, .tag = forms[kind].tag});
    return static_cast<int>(words_.size());
  }

  /// `detail` is the suffix of the relation in enhanced dependencies.
  void attach(int number, const Arc& arc, const std::string& detail = {}) {
    word(number).arc = arc;
    const Arc enhanced{arc.head, arc.relation + (detail.empty() ? "" : ":" + detail)};
    word(number).enhanced.push_back(enhanced);
    if (const int other = word(number).conjunct) word(other).enhanced.push_back(enhanced);
  }

  int clause() {
    const int subject = phrase(0);
    const int helping = draws_.chance(0.25) ? add(auxiliary) : 0, how = draws_.chance(0.25) ? add(adverb) : 0;
    const int verb = predicate(subject, true);
    if (helping) attach(helping, {verb, "aux"});
    if (how) attach(how, {verb, "advmod"});
    attach(subject, {verb, "nsubj"});
    if (draws_.chance(0.25)) second_predicate(verb, subject);
    return verb;
  }

  void second_clause(int first) {
    const int when = add(subjunction), verb = clause();
    attach(when, {verb, "mark"});
    attach(verb, {first, "advcl"}, word(when).form);
  }

  void second_predicate(int first, int subject) {
    const int joint = add(conjunction), verb = predicate(subject, true);
    attach(joint, {verb, "cc"});
    attach(verb, {first, "conj"}, word(joint).form);
    share_subject(subject, {verb, "nsubj"});
  }

  void share_subject(int subject, const Arc& arc) {
    word(subject).enhanced.push_back(arc);
    if (const int other = word(subject).conjunct) word(other).enhanced.push_back(arc);
  }

  /// Appends a verb and what follows it; returns the verb. A verb can govern another verb, but only one level deep.
  int predicate(int subject, bool may_lead) {
    constexpr std::array often = {35, 50, 15};
    const std::size_t drawn = draws_.among(std::span(often).first(may_lead ? 3 : 2));
    const int verb = add(std::array{intransitive, transitive, control}[drawn]);
    if (drawn == 1) attach(phrase(0), {verb, "obj"});
    if (drawn == 2) lead(verb, subject);
    if (drawn != 2 && draws_.chance(0.5)) attach_behind(of_verb, verb, {"obl", 0});
    return verb;
  }

  void lead(int verb, int subject) {
    const int to = add(particle), led = predicate(subject, false);
    attach(to, {led, "mark"});
    attach(led, {verb, "xcomp"});
    share_subject(subject, {led, "nsubj:xsubj"});
  }

  struct Role {
    const char* relation;
    int depth;  // of the phrase
  };
  /// Appends a preposition and its phrase.
  void attach_behind(WordKind preposition, int head, const Role& role) {
    const int in = add(preposition), inner = phrase(role.depth);
    attach(in, {inner, "case"});
    attach(inner, {head, role.relation}, word(in).form);
  }

  /// Appends a noun and its modifiers; returns the noun. Phrases nested deeper have fewer modifiers.
  int phrase(int depth) {
    if (draws_.chance(depth == 0 ? 0.25 : 0.05)) return add(pronoun);
    const int head = draws_.chance(0.2) ? add(name) : common();
    if (depth < 3 && draws_.chance(0.35 / (depth + 1))) attach_behind(of_noun, head, {"nmod", depth + 1});
    if (depth == 0 && draws_.chance(0.1)) second_phrase(head);
    return head;
  }

  int common() {
    const int which = draws_.chance(0.6) ? add(determiner) : 0, what = draws_.chance(0.4) ? add(adjective) : 0;
    const int head = add(noun);
    if (which) attach(which, {head, "det"});
    if (what) attach(what, {head, "amod"});
    return head;
  }

  void second_phrase(int first) {
    const int joint = add(conjunction), second = phrase(1);
    attach(joint, {second, "cc"});
    attach(second, {first, "conj"}, word(joint).form);
    word(first).conjunct = second;
  }

  std::string text() {
    std::string result = "# text =";
    for (const Word& each : words_) result += ' ' + each.form;
    result += '\n';
    for (int number = 1; number <= static_cast<int>(words_.size()); ++number) result += line(number);
    return result + '\n';
  }

  std::string line(int number) {
    Word& own = word(number);
    const auto by_head = [](const Arc& a, const Arc& b) { return a.head < b.head; };
    std::stable_sort(own.enhanced.begin(), own.enhanced.end(), by_head);
    std::string deps;
    for (const Arc& arc : own.enhanced) {
      deps += (deps.empty() ? "" : "|") + std::to_string(arc.head) + ":" + arc.relation;
    }
    return std::to_string(number) + '\t' + own.form + "\t_\t" + own.tag + "\t_\t_\t" + std::to_string(own.arc.head) +
           '\t' + own.arc.relation + '\t' + deps + "\t_\n";
  }

  Draws draws_;
  std::vector<Zipf> ranks_;  // of the forms of each kind
  std::vector<Word> words_;
};

}  // namespace

std::string generate_conllu(std::size_t sentences, std::uint64_t seed) {
  ConlluGenerator generator(seed);
  std::string text;
  for (std::size_t i = 0; i < sentences; ++i) text += generator.sentence();
  return text;
}

}  // namespace windrow
