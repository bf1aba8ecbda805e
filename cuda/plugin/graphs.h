// Graphs, made by stream capture: see Plugin::begin_capture and the functions behind it.
#pragma once

#include "plugin.h"

namespace windrow::cuda {

int prepare_capture(Queue* queue);
int begin_capture(Queue* queue);
int end_capture(Queue* queue, Graph** made, std::size_t* calls);
void free_graph(Graph* graph);
int launch_graph(Queue* queue, const Graph* graph, GraphExec** exec);
void end_exec(GraphExec* exec);

}  // namespace windrow::cuda
