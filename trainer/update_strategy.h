// SPDX-License-Identifier: Apache-2.0
// An update strategy says who holds the weights and who adds the gradients. It is written as one
// rank's code; the collective hides whether ranks are threads or processes.
//
// To add one: a file in updates/ that ends in `extern constinit const UpdateEntry
// NAME_update{...}`, and one line `penstock_component(update NAME)` there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "trainer/collective.h"

namespace penstock {

struct UpdateContext {
  Collective& collective;
  const Options& options;
};

class UpdateStrategy {
 public:
  virtual ~UpdateStrategy() = default;
  /// Called behind each backward pass, on the rank's thread: enqueues the exchange and the update.
  /// May block the thread until other ranks get here, not until a device does.
  virtual void finish_step(Executable&, Stream&) = 0;
};

/// What the ranks' weights are after a step.
enum class Agreement : std::uint8_t { identical, own };

struct UpdateEntry {
  std::string_view name{}, summary{};
  Agreement agreement = Agreement::identical;
  std::span<const OptionSpec> options{};
  std::unique_ptr<UpdateStrategy> (*make)(const UpdateContext&) = nullptr;
};

/// Every update of this program; generated from the component lists.
const Table<UpdateEntry>& update_table();

}  // namespace penstock
