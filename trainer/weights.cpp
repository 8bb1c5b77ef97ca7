// SPDX-License-Identifier: Apache-2.0
#include "trainer/weights.h"

#include <algorithm>
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
    from.read(index, source.parameters[index].weight, plain);
    to.write(index, target.parameters[index].weight, plain);
  }
  for (std::size_t index = 0; index < source.buffers.size(); ++index) {
    const Tensor &values = source.buffers[index].weight, &into = target.buffers[index].weight;
    std::copy_n(static_cast<const float*>(values.data), values.count,
                static_cast<float*>(into.data));
  }
}

}  // namespace penstock
