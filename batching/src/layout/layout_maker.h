// Making a layout: layout_rows.cc assigns rows to vertices, layout.cc places inputs and edges.
#pragma once

#include "layout/layout_memory.h"
#include "windrow/batching/internal/layout.h"

namespace windrow {

/// The state while a layout is made. Layout::make() calls the members in order.
class Layout::Maker {
 public:
  Maker(Layout& layout, std::span<const InputGraph* const> graphs, const Plan& plan, const LayoutOptions& options,
        LayoutMemory::Scratch& scratch)
      : layout_(layout), graphs_(graphs), plan_(plan), options_(options), scratch_(scratch) {
    for (const TypePlan& type : plan.types) any_edges_ |= type.per_edge > 0;
  }

  /// Empties the layout, whose vectors keep their memory.
  void begin();
  void divide();
  void schedule();
  void place_edges();
  void size_columns();
  void place();
  bool any_producers() const;
  void find_producers();
  void fill_columns();

 private:
  void count_by_level();
  bool level_is_best() const;
  void schedule_by_level();
  void count();
  void schedule_group(Index group);
  void begin_types();
  std::size_t cell(Index group, Index level, Index type) const {
    return static_cast<std::size_t>((group * levels_ + level) * static_cast<Index>(layout_.types.size()) + type);
  }
  std::int32_t* rows_of(std::size_t graph) { return scratch_.row_of.data() + layout_.first_vertex[graph]; }
  std::uint32_t type_of(std::size_t graph, const InputGraph::TypeRun& run) const {
    return scratch_.type_numbers[scratch_.type_begin[graph] + static_cast<std::size_t>(run.type)];
  }
  /// Calls visit(run, the run's type in the layout) for a graph.
  template <class Visit>
  void each_type_run(std::size_t graph, Visit visit) const;
  void number_types(std::size_t graph);
  void assign_rows(std::size_t graph);
  struct TypeView;
  InputGraph::Numbers numbers_of(std::size_t graph) { return {*graphs_[graph], scratch_.numbers}; }
  void place_type_run(std::size_t graph, const InputGraph::Numbers& numbers, const InputGraph::TypeRun& run,
                      const TypeView& type);
  void connect(std::int32_t producer, Slot slot);
  void connect_edges(std::size_t graph, const InputGraph::Numbers& numbers, const InputGraph::TypeRun& run,
                     std::uint32_t t);
  /// A bit for each child that the vertices of the run have and that is gathered by number.
  std::uint32_t by_number_of(std::size_t graph, const InputGraph::TypeRun& run) const {
    const ir::VertexType type = graphs_[graph]->type(run.type);
    const ir::Function& function = *plan_.program.function;
    return ir::children(function, type) & ((1u << ir::kind_of(function, type).arity) - 1);
  }
  void add_further(std::int32_t row, Slot slot);
  void fill_rows(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const;
  /// Fills a column whose content comes from the layout instead of the graphs.
  void fill(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const;
  void fill_dropout(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const;
  static void fill_shares(const TypeRows& type, std::vector<float>& to);

  Layout& layout_;
  const std::span<const InputGraph* const> graphs_;
  const Plan& plan_;
  const LayoutOptions& options_;
  bool any_edges_ = false;
  bool by_level_ = false;  ///< the batches are those of policy level; known once schedule() has ended
  /// A column that some step reads.
  struct Active {
    std::size_t number;  // in graphs
    Index width;
    std::int32_t* elements;  // in the layout; may contain the bits of floats
  };
  static void place_edge_rows(const Active& column, const std::int32_t* from, Index at, std::size_t per_edge,
                              Index begin, Index end);
  struct TypeView {
    std::int32_t first;
    std::int32_t* vertex;
    std::vector<Active> of_vertices = {}, of_edges = {};
  };
  std::vector<TypeView> views_;  // by type
  LayoutMemory::Scratch& scratch_;
  Index levels_ = 0;
};

template <class Visit>
void Layout::Maker::each_type_run(std::size_t graph, Visit visit) const {
  const InputGraph& of = *graphs_[graph];
  for (std::int32_t r = 0; r < of.type_runs_; ++r) {
    const InputGraph::TypeRun run = of.type_run(r);
    visit(run, type_of(graph, run));
  }
}

}  // namespace windrow
