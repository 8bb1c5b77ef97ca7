// SPDX-License-Identifier: Apache-2.0
#include "feeders/normalise_option.h"

#include <string>

#include "dataflow/error.h"

namespace penstock {

void normalise_batches(const Options& options, BatchSpec& batches) {
  const std::string& where = options.text("normalise");
  if (where == "device") return;
  if (where != "f32" && where != "f16") {
    throw ConfigError("option 'normalise' is '" + where + "'; expected device, f32 or f16");
  }
  batches.pixel = where == "f32" ? DType::f32 : DType::f16;
  batches.normalised = true;
}

void check_normalised(const Options& options, const BatchSpec& batches) {
  BatchSpec expected = batches;
  expected.pixel = DType::u8;
  expected.normalised = false;
  normalise_batches(options, expected);
  if (expected == batches) return;
  throw ConfigError("option 'normalise' is '" + options.text("normalise") +
                    "', but the consumer of these batches expects " +
                    std::to_string(8 * size_of(batches.pixel)) +
                    "-bit pixels; leave normalise out");
}

}  // namespace penstock
