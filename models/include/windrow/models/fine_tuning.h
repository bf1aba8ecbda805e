// Fine-tuning: a model that begins with the weights of a trained one, whose words and labels may be others.
//
//   const windrow::Workload trained = windrow::load_model(host, "run");
//   windrow::Workload workload = windrow::make_workload("bilstm", host, {.data = "other"});
//   windrow::TakenWeights taken = windrow::take_weights(workload, trained);
#pragma once
#include "windrow/engine/requirements.h"

#include <cstddef>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow {

/// What was taken. A value.
struct TakenWeights {
  std::size_t parameters = 0;
  /// The names of one kind, such as words.
  struct Names {
    std::string what = {};  ///< NamedAxis::what
    std::size_t found = 0;  ///< that both models have
    std::size_t of = 0;     ///< of the model that takes
  };
  std::vector<Names> names = {};
};

/// Sets the parameters of `to` to those of `from` with the same names. Rows and columns that stand for words or labels
/// (Workload::named_axes) are taken by these: those of a word that `from` lacks keep their values, and those that stand
/// for no single word, such as for unknown ones, are taken in order. Call it before training, and before averages are
/// made. The workloads may be on different devices. Waits for both.
///
/// Throws MisuseError, which says what `from` has and what is expected, if the workloads are of different kinds, if one
/// lacks a parameter of the other, or if other sizes differ; and OpError if a step failed. The parameters are unchanged
/// then.
TakenWeights take_weights(Workload& to, const Workload& from);

}  // namespace windrow
