// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/emulated/presets.h"

#include <vector>

#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock::emulated {
const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& known : kPresets) {
    if (known.name == canonical_name(name)) return known;
    names.emplace_back(known.name);
  }
  throw ConfigError("emulated:preset is '" + name + "'; expected one of " + join(names) +
                    ", or state img_per_s=");
}

}  // namespace penstock::emulated
