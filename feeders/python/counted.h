// SPDX-License-Identifier: Apache-2.0
// What is counted of a loader's batches in place of samples: --count. Pure functions.
#pragma once

#include <string_view>

namespace penstock::python {

struct Counted {
  std::string_view unit;  ///< "tokens"
  std::string_view key;   ///< of an entry of the batch, or a function's name
};

/// "[UNIT=]KEY"; the result shows parts of the text. `what` names it in errors. Throws ConfigError.
Counted parse_counted(std::string_view text, std::string_view what);

}  // namespace penstock::python
