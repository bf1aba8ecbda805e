// The module windrow._windrow. Each room of the C++ libraries has a folder here that binds it; datasets.cc
// of training/ belongs to models/.
#include <cstdlib>

#include "python.h"

NB_MODULE(_windrow, m) {
  using namespace windrow::python;
  // The GIL guards the engines and other state of this module. A second interpreter has another GIL, but would share
  // this state.
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    throw nb::import_error("windrow cannot be imported in a subinterpreter; expected the main interpreter");
  }
  m.attr("_version") = WINDROW_VERSION;
  m.doc() = "The C++ part of the package windrow; import windrow instead.";
  // Off by default, since Python never releases objects to which daemon threads and the last exception refer.
  const char* const asked = std::getenv("WINDROW_LEAK_WARNINGS");
  nb::set_leak_warnings(asked != nullptr && *asked != '\0');
  bind_errors(m);
  bind_engine(m);
  bind_engine_life(m);
  bind_graph(m);
  bind_devices(m);
  bind_tensors(m);
  bind_dlpack(m);
  bind_tensor_operators(m);
  bind_tapes(m);
  bind_random(m);
  bind_parameters(m);
  bind_lazy(m);
  bind_weights(m);
  bind_expressions(m);
  bind_vertex_function(m);
  bind_cells(m);
  bind_graphs(m);
  bind_runner(m);
  bind_schedule(m);
  bind_optimisers(m);
  bind_checkpoints(m);
  bind_datasets(m);
  bind_communicators(m);
  bind_data_parallel(m);
  bind_predictions(m);
  bind_models(m);
  bind_trainer(m);
}
