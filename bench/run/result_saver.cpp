// SPDX-License-Identifier: Apache-2.0
#include "bench/run/result_saver.h"

#include <fmt/format.h>

#include "dataflow/error.h"

namespace penstock {

void ResultSaver::save(const std::function<void()>& write,
                       const std::function<void(const std::string&)>& print) {
  try {
    write();
    saved_ = true;
  } catch (const DataError& error) {
    if (!begun_) {
      throw ConfigError(fmt::format("{}; give --out a folder that can be written", error.what()));
    }
    if (saved_) {
      print(
          fmt::format("penstock: {}; the files are those before this run, and the measurement "
                      "goes on",
                      error.what()));
    }
    saved_ = false;
  }
  begun_ = true;
}

}  // namespace penstock
