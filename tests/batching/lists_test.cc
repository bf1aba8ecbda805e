// Functions of lists in vertex functions, in which a value of edges stands for all children: as the oracle computes
// them, and as lazy expressions and cells do.
#include "tests/batching/check_minibatch.h"
#include "windrow/models/layers.h"

namespace windrow::testing {
namespace {

// The oracle's versions, which compute with the rows of all terms.
using RowList = std::vector<Row>;

std::vector<Values> terms_of(const RowList& list) {
  std::vector<Values> terms;
  const auto width = static_cast<std::size_t>(list[0].type.width);
  for (const Row& row : list) {
    for (std::size_t at = 0; at < row.values.size(); at += width) {
      terms.emplace_back(row.values.begin() + static_cast<std::ptrdiff_t>(at),
                         row.values.begin() + static_cast<std::ptrdiff_t>(at + width));
    }
  }
  return terms;
}

/// fold(column) for each column; zeros without terms.
template <class Fold>
Row by_column_of_terms(const RowList& list, Fold fold) {
  const std::vector<Values> terms = terms_of(list);
  Row result{list[0].oracle, {Rows::count(1), list[0].type.width}, {}};
  for (std::size_t c = 0; c < static_cast<std::size_t>(list[0].type.width); ++c) {
    Values column;
    for (const Values& term : terms) column.push_back(term[c]);
    result.values.push_back(column.empty() ? 0 : fold(column));
  }
  return result;
}
double sum_of(const Values& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double log_sum_exp_of_terms(const Values& x) {
  const double top = *std::ranges::max_element(x);
  double sum = 0;
  for (const double value : x) sum += std::exp(value - top);
  return top + std::log(sum);
}
Row sum(const RowList& list) { return by_column_of_terms(list, sum_of); }
Row mean(const RowList& list) {
  return by_column_of_terms(list, [](const Values& x) { return sum_of(x) / static_cast<double>(x.size()); });
}
Row max(const RowList& list) {
  return by_column_of_terms(list, [](const Values& x) { return *std::ranges::max_element(x); });
}
Row log_sum_exp(const RowList& list) { return by_column_of_terms(list, log_sum_exp_of_terms); }
RowList softmax(const RowList& list) {
  const Row all = log_sum_exp(list);
  RowList shares = list;
  for (Row& share : shares) {
    for (std::size_t i = 0; i < share.values.size(); ++i) {
      share.values[i] = std::exp(share.values[i] - all.values[i % all.values.size()]);
    }
  }
  return shares;
}
Row weighted_sum(const RowList& weights, const RowList& values) {
  RowList products;
  for (std::size_t i = 0; i < values.size(); ++i) products.push_back(values[i] * weights[i]);
  return sum(products);
}
Row dot_attention(const Row& query, const RowList& keys, const RowList& values, const RowList& masks = {}) {
  RowList scores;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    scores.push_back(row_dot(keys[i], query));
    if (!masks.empty()) scores.back() = scores.back() + masks[i];
  }
  return weighted_sum(softmax(scores), values);
}
Row concat(const RowList& parts) {
  Row all{parts[0].oracle, {Rows::count(1), 0}, {}};
  for (const Row& part : parts) {
    all.type.width += part.type.width;
    all.values.insert(all.values.end(), part.values.begin(), part.values.end());
  }
  return all;
}

/// All functions of a list side by side, for expressions of any kind. `query` is as family_width as the list.
template <class Expression>
Expression all_of_list(const std::vector<Expression>& list, const Expression& query) {
  std::vector<Expression> scores;
  for (const Expression& one : list) scores.push_back(row_sum(one));
  std::vector<Expression> shares = softmax(list);
  for (std::size_t i = 0; i < list.size(); ++i) shares[i] = shares[i] * list[i];
  return concat(std::vector<Expression>{sum(list), mean(list), max(list), log_sum_exp(list), sum(shares),
                                        weighted_sum(softmax(scores), list), dot_attention(query, list, list),
                                        dot_attention(query, list, list, scores)});
}

/// A vertex and all its children.
struct ListCell {
  static constexpr std::size_t arity = any_arity;
  static constexpr Index h = 3;
  Parameter w;
  explicit ListCell(Parameters& p) : w(p.add("w", 2, h, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto state = v.state("h", h);
    const auto own = tanh(matmul(v.pull("x", 2), w)), children = v.each(state);
    const auto among_all = all_of_list(std::vector{children, own}, own);
    const auto twice = all_of_list(std::vector{own, children, 0.5 * children}, own);
    const auto of_children = all_of_list(std::vector{children, -1.0 * children}, own);
    v.scatter(state, own + 0.1 * slice(among_all, 0, h) - 0.2 * slice(of_children, 3 * h, 4 * h));
    v.push("among all", among_all);
    v.push("twice", twice);
    v.push("of children", of_children);
    v.loss(row_sum(square(among_all)) + row_sum(square(twice)) + row_sum(square(of_children)));
  }
};

TEST(VertexLists, OfEdgesAndTheVertexAreAsTheOracleComputesThem) {
  for (const Form form : {Form::trees, Form::dag}) {
    Engine engine({.workers = 2});
    check_cell<ListCell>(host_device(engine), form, first_seed());
  }
}

constexpr Index family_width = 3;

/// A table of three rows: those of two children, and that of the vertex that attends to them and to itself.
struct Family : OnHost {
  const Parameter table = parameters.add("table", 3, family_width, Initial::uniform(-1, 1));
  const AdditiveAttention additive{parameters, "attention", {family_width, family_width, 4}};
  LazyGraph graph{host, parameters};

  template <class Expression>
  Expression loss(const std::vector<Expression>& list, const Expression& own) const {
    return row_sum(square(all_of_list(list, own))) + row_sum(square(attend(DotAttention(), own, list, list))) +
           row_sum(square(attend(additive, own, list, list)));
  }

  /// The loss, then all gradients.
  std::vector<Values> found(double loss) const {
    std::vector<Values> all = gradients();
    all.push_back({loss});
    return all;
  }
  /// `list` makes the list of the root's children and its own value.
  std::vector<Values> by_vertices(std::size_t arity,
                                  const std::function<std::vector<Expr>(Vertex&, const State&, const Expr&)>& list) {
    const VertexFunction leaf("leaf", {}, [&](Vertex& v) {
      v.scatter(v.state("h", family_width), tanh(embedding(table, v.pull_index("row"))));
    });
    const VertexFunction root("root", {.arity = arity}, [&](Vertex& v) {
      const Expr own = tanh(embedding(table, v.pull_index("row")));
      v.loss(loss(list(v, v.state("h", family_width), own), own));
    });
    GraphData data = graph_of({{}, {}, {0, 1}});
    data.kinds = {0, 0, 1};
    data.indices["row"] = {0, 1, 2};
    return found(differentiated(VertexFunction("family", {leaf, root}), {data}).loss());
  }
  std::vector<Values> lazily(const std::function<LazyExpr(const std::vector<LazyExpr>&)>& loss_of) {
    std::vector<LazyExpr> rows;
    for (std::int32_t i = 0; i < 3; ++i) rows.push_back(tanh(embedding(table, graph.index(i))));
    const LazyExpr loss = loss_of(rows);
    graph.backward({&loss, 1});
    return found(loss.scalar());
  }
};

void expect_alike(const std::vector<Values>& all, const std::vector<Values>& expected) {
  ASSERT_EQ(all.size(), expected.size());
  for (std::size_t i = 0; i < all.size(); ++i) expect_close(all[i], expected[i], 1e-5);
}

TEST(Lists, MeanTheSameInVertexFunctionsLazyExpressionsAndCells) {
  Family family;
  const auto expected = family.by_vertices(2, [](Vertex& v, const State& h, const Expr& own) {
    return std::vector{v.gather(0, h), v.gather(1, h), own};
  });
  ASSERT_GT(expected.back()[0], 0);
  expect_alike(family.by_vertices(any_arity,
                                  [](Vertex& v, const State& h, const Expr& own) {
                                    return std::vector{v.each(h), own};
                                  }),
               expected);
  expect_alike(family.lazily([&](const auto& rows) { return family.loss(rows, rows[2]); }), expected);
  family.graph.clear();
  const LazyCell of_operands = family.graph.cell("of operands", [&](CellBody& cell) {
    std::vector<Expr> list;
    for (int i = 0; i < 3; ++i) list.push_back(cell.operand(family_width));
    cell.result(family.loss(list, list[2]));
  });
  expect_alike(family.lazily([&](const auto& rows) { return of_operands({rows[0], rows[1], rows[2]}); }), expected);
  family.graph.clear();
  const LazyCell of_each = family.graph.cell("of each", [&](CellBody& cell) {
    const Expr own = cell.operand(family_width);
    cell.result(family.loss(std::vector{cell.each(family_width), own}, own));
  });
  expect_alike(family.lazily([&](const auto& rows) { return of_each({rows[2]}, {}, std::span(rows).first(2)); }),
               expected);
}

/// The maximum over no children, 0, counts for nothing.
TEST(VertexLists, AreOfTheVertexAloneWhereThereAreNoChildren) {
  OnHost s;
  const VertexFunction function("alone", {.arity = any_arity}, [](Vertex& v) {
    const State state = v.state("h", 2);
    const Expr own = v.pull("x", 2), children = v.each(state);
    v.scatter(state, own);
    v.push("max", windrow::max({children, own}));
    v.push("log_sum_exp", windrow::log_sum_exp({own, children}));
    v.push("share", windrow::softmax({children, own})[1]);
    v.push("mean", windrow::mean({children, own}));
    v.push("attended", attend(DotAttention(), own, {children, own}, {children, own}));
    v.push("children", windrow::sum({children}) + windrow::mean({children}) + windrow::max({children}) +
                           windrow::log_sum_exp({children}));
  });
  const Floats x = {-500, 300};
  const Minibatch minibatch = s.computed(function, {leaves(1, x)});
  for (const char* const name : {"max", "log_sum_exp", "mean", "attended"}) {
    EXPECT_EQ(minibatch.output(name).get(), x) << name;
  }
  EXPECT_EQ(minibatch.output("share").get(), (Floats{1, 1}));
  EXPECT_EQ(minibatch.output("children").get(), (Floats{0, 0}));
}

/// In contrast to a child that `each` does not have.
TEST(Lists, CountMissingChildrenAndEmptyOperandsAsZeros) {
  OnHost s;
  const VertexFunction function("pair", {.arity = 2}, [](Vertex& v) {
    const State state = v.state("h", 1);
    const Expr own = v.pull("x", 1);
    v.scatter(state, own);
    v.push("mean", windrow::mean({v.gather(0, state), v.gather(1, state), own}));
    v.push("max", windrow::max({v.gather(0, state), own}));
  });
  const Minibatch minibatch = s.computed(function, {graph_of({{}, {0}}, {-3, -6})});
  EXPECT_EQ(minibatch.output("mean").get(), (Floats{-1, -3}));
  EXPECT_EQ(minibatch.output("max").get(), (Floats{0, -3}));

  LazyGraph graph(s.host, s.parameters);
  const LazyCell cell = graph.cell("pair", [](CellBody& body) {
    const Expr left = body.operand(1), right = body.operand(1);
    body.result(windrow::mean({left, right, windrow::max({left, right})}));
  });
  EXPECT_EQ(cell({{}, graph.input({-3})}).value(), (Floats{-1}));
}

TEST(VertexLists, HideTermsByMasksAndShareAlikeIfAllAreHidden) {
  OnHost s;
  const VertexFunction function("masks", {.arity = any_arity}, [](Vertex& v) {
    const State state = v.state("h", 1);
    const Expr own = v.pull("x", 1), children = v.each(state), hidden = v.pull("mask", 1);
    v.scatter(state, own);
    v.push("attended", attend(DotAttention(), own, {children, own}, {children, own}, {to_children(hidden), hidden}));
    v.push("without", attend(DotAttention(), own, {children, own}, {children, own}, {v.pull_edge("e", 1), hidden}));
  });
  GraphData data = graph_of({{}, {}, {0, 1}}, {1, 2, 6});
  data.values["mask"] = {0, 0, -1e30f};
  data.edge_values["e"] = {-1e30f, 0};
  const Minibatch minibatch = s.computed(function, {data});
  EXPECT_EQ(minibatch.output("attended").get()[2], 3) << "the mean of 1, 2 and 6";
  EXPECT_EQ(minibatch.output("without").get()[2], 2) << "the only one that is seen";
}

/// Operands and lists, in vertex functions and as lazy expressions.
TEST(Lists, AreConcatenatedAndPooledHoweverTheyAreWritten) {
  OnHost s;
  const Parameter w = s.parameters.add("w", 1, 2, Initial::constant(7));
  const VertexFunction function("lists", {}, [&](Vertex& v) {
    const Expr x = v.pull("x", 2), y = 2.0 * x, z = 3.0 * x;
    const std::vector<Expr> list = {x, z, y};
    v.push("braces", windrow::concat({x, y, z, w}));
    v.push("operands", concat(x, y, z, w));
    v.push("list", concat(list));
    v.push("largest", k_max(list, 2));
  });
  const Minibatch minibatch = s.computed(function, {leaves(1, {1, -1})});
  EXPECT_EQ(minibatch.output("braces").get(), (Floats{1, -1, 2, -2, 3, -3, 7, 7}));
  EXPECT_EQ(minibatch.output("operands").get(), minibatch.output("braces").get());
  EXPECT_EQ(minibatch.output("list").get(), (Floats{1, -1, 3, -3, 2, -2}));
  EXPECT_EQ(minibatch.output("largest").get(), (Floats{3, -1, 2, -2}));

  LazyGraph graph(s.host, s.parameters);
  const LazyExpr x = graph.input({1, -1}), y = 2.0 * x, z = 3.0 * x;
  const std::vector<LazyExpr> list = {x, z, y};
  EXPECT_EQ(windrow::concat({x, y, z, w}).value(), minibatch.output("braces").get());
  EXPECT_EQ(concat(list).value(), minibatch.output("list").get());
  EXPECT_EQ(k_max(list, 2).value(), minibatch.output("largest").get());
  EXPECT_EQ(windrow::k_max({x, z, y}, 2).value(), minibatch.output("largest").get());
  EXPECT_EQ(windrow::sum({x, y, z}).value(), (Floats{6, -6}));
  EXPECT_EQ(windrow::mean({x, y, z}).value(), (Floats{2, -2}));
  EXPECT_EQ(windrow::max({x, y, z}).value(), (Floats{3, -1}));
}

/// The function, the operation, and the shapes.
TEST(VertexLists, RefuseWhatDoesNotFit) {
  const auto said = [](auto body) {
    return error_of<MisuseError>([&] {
      VertexFunction("cell", {.arity = any_arity}, [&](Vertex& v) {
        body(v.pull("x", 2), v.pull("y", 1), v.pull_edge("e", 2), v.pull_edge("f", 1));
      });
    });
  };
  using X = const Expr&;
  EXPECT_EQ(said([](X, X, X, X) { windrow::softmax(std::span<const Expr>()); }),
            "softmax of no expressions; expected one or more");
  EXPECT_EQ(said([](X, X, X, X) { windrow::concat(std::span<const Expr>()); }),
            "concat of no expressions; expected one or more");
  EXPECT_EQ(said([](X x, X, X, X f) {
              windrow::sum({x, f});
            }),
            "cell: sum: operand 0 is vertices x 2, operand 1 is edges x 1; expected one width");
  EXPECT_EQ(said([](X x, X y, X e, X) {
              windrow::weighted_sum({y}, {x, e});
            }),
            "cell: weighted_sum: 1 weights for 2 values; expected as many");
  EXPECT_EQ(said([](X x, X, X e, X) {
              windrow::weighted_sum({x, e}, {x, e});
            }),
            "cell: weighted_sum: weight 0 is vertices x 2; expected a width of 1");
  EXPECT_EQ(
      said([](X x, X y, X e, X f) {
        windrow::weighted_sum({f, y}, {x, e});
      }),
      "cell: weighted_sum: weight 0 is edges x 1, value 0 is vertices x 2; expected both of edges, or both of the "
      "vertex");
  EXPECT_EQ(said([](X x, X y, X e, X) {
              attend(DotAttention(), y, {e, x}, {e, x});
            }),
            "cell: dot_attention: the query is vertices x 1, key 0 is edges x 2; expected one width");
  EXPECT_EQ(said([](X x, X, X e, X) {
              attend(DotAttention(), x, {e, x}, {e, x}, {e});
            }),
            "attend: 1 masks for 2 keys; expected as many");
  EXPECT_EQ(said([](X x, X, X e, X) {
              windrow::k_max({x, e}, 1);
            }),
            "cell: k_max: operand 1 is edges x 2; expected values of the vertex, or k_max_children()");
  EXPECT_EQ(said([](X x, X, X, X) {
              windrow::k_max({x, x}, 3);
            }),
            "cell: k_max of 2 expressions: k 3; expected 1 to 2");
}

}  // namespace
}  // namespace windrow::testing
