// SPDX-License-Identifier: Apache-2.0
// Saves results after each run of a series, so that an end of the program loses none.
#pragma once

#include <functional>
#include <string>

namespace penstock {

class ResultSaver {
 public:
  /// Calls `write`. If it throws DataError, throws ConfigError the first time, because a series
  /// that cannot be saved should not begin; later, prints a line with `print`, once until it works
  /// again.
  void save(const std::function<void()>& write,
            const std::function<void(const std::string&)>& print);
  /// Are all results so far on disk?
  bool saved() const noexcept { return saved_; }

 private:
  bool begun_ = false, saved_ = true;
};

}  // namespace penstock
