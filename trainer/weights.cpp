// SPDX-License-Identifier: Apache-2.0
#include "trainer/weights.h"

#include <vector>

#include "dataflow/error.h"

namespace penstock {

void copy_weights(Executable& from, Executable& to) {
  const ParameterSet &source = from.parameters(), &target = to.parameters();
  PENSTOCK_ASSERT(source.parameters.size() == target.parameters.size());
  PENSTOCK_ASSERT(source.running.count == target.running.count);
  std::vector<float> plain;
  for (std::size_t index = 0; index < source.parameters.size(); ++index) {
    plain.resize(static_cast<std::size_t>(source.parameters[index].spec.count()));
    from.read(source.parameters[index].spec, source.parameters[index].weight, plain);
    to.write(target.parameters[index].spec, target.parameters[index].weight, plain);
  }
  for (std::size_t index = 0; index < source.buffers.size(); ++index) {
    plain.resize(source.buffers[index].weight.count);
    from.read(source.buffers[index].spec, source.buffers[index].weight, plain);
    to.write(target.buffers[index].spec, target.buffers[index].weight, plain);
  }
}

}  // namespace penstock
