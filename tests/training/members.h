// Members of a group of data-parallel training, in threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/training/rows_model.h"
#include "windrow/comm/local.h"

namespace windrow::testing {

/// Calls body(rank) in a thread for each member.
inline void in_threads(int members, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < members; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

/// Calls body(model, communicator) in a thread for each member; each has an engine of its own. The matrices are so
/// large that their sums are cut.
inline void with_members(int members, RowsModel::Options options,
                         const std::function<void(RowsModel&, const Communicator&)>& body) {
  options.rows = 70;
  options.width = 90;
  std::vector<std::unique_ptr<RowsModel>> models;
  std::vector<Device> devices;
  for (int rank = 0; rank < members; ++rank) {
    models.push_back(std::make_unique<RowsModel>(options));
    devices.push_back(models.back()->host);
  }
  const LocalGroup group(devices);
  in_threads(members, [&](int rank) { body(*models[static_cast<std::size_t>(rank)], group[rank]); });
}

}  // namespace windrow::testing
