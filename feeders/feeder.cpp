// SPDX-License-Identifier: Apache-2.0
#include "feeders/feeder.h"

#include <exception>
#include <utility>

namespace penstock {

void run_to_end(Feeder& feeder, BatchRing& out, std::stop_token stop) noexcept {
  try {
    feeder.run(out, std::move(stop));
    out.close();
  } catch (...) {
    out.fail(std::current_exception());
  }
}

}  // namespace penstock
