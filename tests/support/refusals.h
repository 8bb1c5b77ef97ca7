// SPDX-License-Identifier: Apache-2.0
// Collects a source's messages about samples that it refuses.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dataflow/error.h"
#include "dataflow/source.h"

namespace penstock {

/// Reads to the end. Returns the messages of samples that load() refused, by index.
inline std::map<std::uint64_t, std::string> refusals(Source& source) {
  std::map<std::uint64_t, std::string> refused;
  for (Sample sample; source.next(sample);) {
    try {
      source.load(sample);
    } catch (const DataError& error) {
      refused[sample.index] = error.what();
    }
  }
  return refused;
}

}  // namespace penstock
