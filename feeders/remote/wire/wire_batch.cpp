// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/wire_batch.h"

#include <algorithm>
#include <cstring>

#include "feeders/pixel_options.h"

namespace penstock::remote {
namespace {

constexpr values::NumpyType kSlotLabel{.kind = 'i', .bytes = 4};

std::optional<std::int64_t> label_at(const WireBatch& batch, std::size_t index) {
  return values::numpy_integer(
      batch.label_type,
      batch.labels.subspan(index * batch.label_type.bytes, batch.label_type.bytes));
}

}  // namespace

void refuse_pixels(std::string text, std::optional<DType> type, std::span<const std::int64_t> shape,
                   const BatchSpec& spec) {
  const std::string flags = flags_for_pixels("zmq-consume", type, shape, spec);
  if (!flags.empty()) text += "; a run with " + flags + " takes it";
  throw MisfitError(text);
}

void check_labels(const WireBatch& batch, const BatchSpec& spec, std::string_view message) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.images); ++i) {
    const std::optional<std::int64_t> label = label_at(batch, i);
    if (label && *label >= 0 && *label < spec.classes) continue;
    throw DataError("{}: label {} is {}; expected 0 to {}", message, i,
                    label ? std::to_string(*label) : "no whole number", spec.classes - 1);
  }
}

void copy_batch(const WireBatch& from, Batch& to) {
  PENSTOCK_ASSERT(from.samples > 0 ? from.pixels.size() <= to.pixels.size()
                                   : from.pixels.size() == to.pixels.size());
  std::memcpy(to.pixels.data(), from.pixels.data(), from.pixels.size());
  copy_labels(from, to);
}

void copy_labels(const WireBatch& from, Batch& to) {
  if (from.samples > 0) {
    to.valid = from.samples;
    to.bytes = from.pixels.size();
    std::ranges::fill(to.labels, 0);
    return;
  }
  PENSTOCK_ASSERT(from.labels.size() == to.labels.size() * from.label_type.bytes);
  if (from.label_type == kSlotLabel) {
    std::memcpy(to.labels.data(), from.labels.data(), from.labels.size());
    return;
  }
  for (std::size_t i = 0; i < to.labels.size(); ++i) {
    to.labels[i] = static_cast<std::int32_t>(label_at(from, i).value_or(0));
  }
}

}  // namespace penstock::remote
