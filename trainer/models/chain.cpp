// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/chain.h"

#include <vector>

namespace penstock {

Window make_window(Kernel kernel, std::int32_t stride, Padding padding) {
  const bool pads = padding == Padding::same;
  const std::int32_t rows = pads ? (kernel.height - 1) / 2 : 0;
  const std::int32_t columns = pads ? (kernel.width - 1) / 2 : 0;
  return {kernel.height, kernel.width, stride, rows, columns, rows, columns};
}

Chain::Chain(Graph& graph, std::string_view name, NodeId input,
             const std::optional<BatchNorm>& normalise)
    : graph_(graph), prefix_(name), end_(input), normalise_(normalise) {
  if (!prefix_.empty()) prefix_ += '.';
}

std::string Chain::name_of(std::string_view layer, std::int32_t& count) const {
  return prefix_ + std::string(layer) + std::to_string(++count);
}

void Chain::add(std::string name, const Op& op) { end_ = graph_.add(std::move(name), op, {end_}); }

Chain& Chain::conv(std::int32_t channels, Kernel kernel, std::int32_t stride, Padding padding) {
  const std::string name = name_of("conv", counts_.conv);
  add(name, Conv2d{.channels = channels,
                   .window = make_window(kernel, stride, padding),
                   .bias = !normalise_.has_value()});
  if (normalise_) add(name + ".bn", *normalise_);
  add(name + ".relu", Relu{});
  return *this;
}

Chain& Chain::max_pool(Kernel kernel, std::int32_t stride, Padding padding) {
  add(name_of("pool", counts_.pool), MaxPool{make_window(kernel, stride, padding)});
  return *this;
}

Chain& Chain::avg_pool(Kernel kernel, std::int32_t stride, Padding padding) {
  add(name_of("pool", counts_.pool),
      AvgPool{.window = make_window(kernel, stride, padding), .count_padding = false});
  return *this;
}

Chain& Chain::global_avg_pool() {
  add(name_of("pool", counts_.pool), GlobalAvgPool{});
  return *this;
}

Chain& Chain::lrn(const Lrn& op) {
  add(name_of("lrn", counts_.lrn), op);
  return *this;
}

Chain& Chain::affine(std::int32_t features) {
  const std::string name = name_of("affine", counts_.affine);
  add(name, Linear{features});
  add(name + ".relu", Relu{});
  return *this;
}

Chain& Chain::dropout(float rate) {
  add(name_of("dropout", counts_.dropout), Dropout{rate});
  return *this;
}

void Chain::logits(std::int32_t classes) { add(prefix_ + "logits", Linear{classes}); }

NodeId Branches::join(std::initializer_list<Chain> branches) const {
  std::vector<NodeId> ends;
  for (const Chain& branch : branches) ends.push_back(branch.end());
  return graph_.add(name_, Concat{}, ends);
}

}  // namespace penstock
