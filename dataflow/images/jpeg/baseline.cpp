// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/baseline.h"

#include <algorithm>

namespace penstock::jpeg {
namespace {

constexpr std::int32_t kBlock = 8;

std::int32_t divide_up(std::int32_t value, std::int32_t by) { return (value + by - 1) / by; }

}  // namespace

BaselineDecoder::BaselineDecoder(InstructionSet set)
    : idct_(Idct::choose(set)),
      upsample_(Upsample::choose(set)),
      ycc_(Ycc::choose(set)),
      entropy_(set) {}

bool BaselineDecoder::begin(const Frame& frame, const PixelRange& columns, const PixelRange& rows,
                            bool smooth) {
  const bool colour = frame.components == 3;
  if (!colour && frame.components != 1) return false;
  if (frame.width < 1 || frame.height < 1) return false;
  if (frame.horizontal < 1 || frame.horizontal > 2 || frame.vertical < 1 || frame.vertical > 2 ||
      (!colour && frame.horizontal * frame.vertical != 1)) {
    return false;
  }
  // There are two sets of tables, since both chroma components use the same one in practice.
  if (colour && (!(frame.dc[1] == frame.dc[2]) || !(frame.ac[1] == frame.ac[2]))) return false;
  for (std::size_t i = 0; i < (colour ? 2U : 1U); ++i) {
    if (!dc_[i].build(frame.dc[i])) return false;
  }
  rows_ = rows;
  wide_ = frame.horizontal == 2;
  high_ = frame.vertical == 2;
  // libjpeg's filter needs three columns, unless it filters rows only.
  const bool enough = !wide_ || divide_up(frame.width, 2) > 2;
  smooth_across_ = smooth && enough && wide_;
  smooth_down_ = smooth && enough && high_;
  units_across_ = divide_up(frame.width, kBlock * frame.horizontal);
  chroma_height_ = divide_up(frame.height, frame.vertical);
  left_ = columns.first & ~1;
  constexpr auto kStep = static_cast<std::int32_t>(Ycc::kStep);
  width_ = divide_up(columns.end - left_, kStep) * kStep;

  plane_count_ = static_cast<std::uint32_t>(frame.components);
  const auto luma_blocks = static_cast<std::uint32_t>(frame.horizontal * frame.vertical);
  std::array<BlockCode, 3> codes{};
  for (std::uint32_t i = 0; i < plane_count_; ++i) {
    Plane& plane = planes_[i];
    if (!plane.quantisation.assign(frame.quantisation[i])) return false;
    const std::size_t set = i == 0 ? 0 : 1;
    codes[i] = {&dc_[set], &ac_[set], plane.quantisation.limits[0]};
    plane.first_block = i == 0 ? 0 : static_cast<std::int32_t>(luma_blocks + i) - 1;
    choose_samples(plane, frame, columns);
  }
  make_room();
  mark_columns();
  const std::uint32_t blocks = luma_blocks + (colour ? 2 : 0);
  const bool leaves_out = !wants_all(static_cast<std::uint8_t>((1U << blocks) - 1));
  for (std::size_t i = 0; i < (colour ? 2U : 1U); ++i) {
    if (!ac_[i].build(frame.ac[i], leaves_out)) return false;
  }
  beyond_ = {};
  std::fill_n(components_.begin(), luma_blocks, std::uint8_t{0});
  if (colour) {
    components_[luma_blocks] = 1;
    components_[luma_blocks + 1] = 2;
  }
  entropy_.begin(frame.data, std::span(components_).first(blocks), codes, frame.restart_interval);
  return true;
}

/// The row of chroma nearest to a row of pixels, or, if `farther`, the other row that it uses.
std::int32_t BaselineDecoder::chroma_row(std::int32_t row, bool farther) const {
  if (!high_) return row;
  const std::int32_t nearer = row / 2;
  if (!farther || !smooth_down_) return nearer;
  return std::clamp(row % 2 == 0 ? nearer - 1 : nearer + 1, 0, chroma_height_ - 1);
}

/// Finds the samples of a component that the window needs.
void BaselineDecoder::choose_samples(Plane& plane, const Frame& frame, const PixelRange& columns) {
  const bool luma = &plane == planes_.data();
  plane.horizontal = luma ? frame.horizontal : 1;
  plane.vertical = luma ? frame.vertical : 1;
  plane.columns = columns;
  plane.rows = rows_;
  if (luma) return;
  if (wide_) {
    const std::int32_t width = divide_up(frame.width, 2), beside = smooth_across_ ? 1 : 0;
    plane.columns = {std::max(0, columns.first / 2 - beside),
                     std::min(width, (columns.end - 1) / 2 + 1 + beside)};
  }
  const std::int32_t first = rows_.first, last = rows_.end - 1;
  plane.rows = {std::min(chroma_row(first, false), chroma_row(first, true)),
                std::max(chroma_row(last, false), chroma_row(last, true)) + 1};
}

/// Allocates the samples of the window's units, with room for whole vectors.
void BaselineDecoder::make_room() {
  std::int32_t end_unit = 0;
  first_unit_ = units_across_;
  end_row_ = 0;
  for (const Plane& plane : planes()) {
    const std::int32_t width = kBlock * plane.horizontal, height = kBlock * plane.vertical;
    first_unit_ = std::min(first_unit_, plane.columns.first / width);
    end_unit = std::max(end_unit, divide_up(plane.columns.end, width));
    end_row_ = std::max(end_row_, divide_up(plane.rows.end, height));
  }
  constexpr std::size_t kBeyond = 2 * Upsample::kOver;
  const auto grow = [](auto& vector, std::size_t size) {
    if (vector.size() < size) vector.resize(size);
  };
  for (Plane& plane : planes()) {
    plane.ring_rows = 2 * kBlock * plane.vertical;
    plane.first_column = first_unit_ * kBlock * plane.horizontal;
    plane.stride = static_cast<std::ptrdiff_t>(end_unit - first_unit_) * kBlock * plane.horizontal +
                   static_cast<std::ptrdiff_t>(kBeyond);
    grow(plane.samples, static_cast<std::size_t>(plane.stride * plane.ring_rows) + kBeyond);
  }
  const auto width = static_cast<std::size_t>(width_);
  grow(sums_, kSumsBefore + width + kBeyond);
  for (std::vector<std::uint8_t>& row : chroma_) grow(row, width + kBeyond);
}

/// Marks, for each column of units, every block that the window's columns need.
void BaselineDecoder::mark_columns() {
  needed_.assign(static_cast<std::size_t>(units_across_), 0);
  for (std::int32_t column = first_unit_; column < units_across_; ++column) {
    std::uint32_t mask = 0;
    for (const Plane& plane : planes()) {
      for (std::int32_t i = 0; i < plane.horizontal * plane.vertical; ++i) {
        const std::int32_t first = kBlock * (column * plane.horizontal + i % plane.horizontal);
        if (first < plane.columns.end && first + kBlock > plane.columns.first) {
          mask |= 1U << (plane.first_block + i);
        }
      }
    }
    needed_[static_cast<std::size_t>(column)] = static_cast<std::uint8_t>(mask);
  }
}

/// A bit for every block of a row of units that the window's rows need.
std::uint8_t BaselineDecoder::rows_mask(std::int32_t unit_row) const {
  std::uint32_t mask = 0;
  for (const Plane& plane : planes()) {
    for (std::int32_t i = 0; i < plane.horizontal * plane.vertical; ++i) {
      const std::int32_t first = kBlock * (unit_row * plane.vertical + i / plane.horizontal);
      if (first < plane.rows.end && first + kBlock > plane.rows.first) {
        mask |= 1U << (plane.first_block + i);
      }
    }
  }
  return static_cast<std::uint8_t>(mask);
}

/// True if no block up to the window's last row can be skipped; `all` has a bit for each.
bool BaselineDecoder::wants_all(std::uint8_t all) const {
  return rows_mask(0) == all && rows_mask(end_row_ - 1) == all &&
         std::ranges::count(needed_, all) == units_across_;
}

void BaselineDecoder::take(std::uint32_t column, std::uint32_t needed, const Unit& unit) {
  for (Plane& plane : planes()) {
    const std::int32_t left = kBlock * plane.horizontal * static_cast<std::int32_t>(column);
    for (std::int32_t i = 0; i < plane.horizontal * plane.vertical; ++i) {
      const auto block = static_cast<std::size_t>(plane.first_block + i);
      if ((needed >> block & 1) == 0) continue;
      const std::int32_t row = kBlock * (unit_row_ * plane.vertical + i / plane.horizontal);
      idct_.for_last(unit.last[block])(unit.blocks[block].values.data(), plane.quantisation,
                                       plane.at(left + kBlock * (i % plane.horizontal), row),
                                       plane.stride, beyond_);
    }
  }
}

bool BaselineDecoder::decode(const PlaceOfRow& place) {
  std::int32_t next = rows_.first;
  const auto take_unit = [this](std::uint32_t column, std::uint32_t needed, const Unit& unit) {
    take(column, needed, unit);
  };
  for (unit_row_ = 0; unit_row_ < end_row_; ++unit_row_) {
    if (!entropy_.decode_row(needed_, rows_mask(unit_row_), take_unit)) return false;
    if (Idct::any(beyond_)) return false;
    const auto decoded = [&](const Plane& plane, std::int32_t row) {
      return row < kBlock * plane.vertical * (unit_row_ + 1);
    };
    for (; next < rows_.end && decoded(planes_[0], next); ++next) {
      if (plane_count_ > 1 && (!decoded(planes_[1], chroma_row(next, false)) ||
                               !decoded(planes_[1], chroma_row(next, true)))) {
        break;
      }
      write_row(next, place(next));
    }
  }
  return true;
}

void BaselineDecoder::write_row(std::int32_t row, std::uint8_t* to) {
  const std::uint8_t* const luma = planes_[0].at(left_, row);
  const auto width = static_cast<std::size_t>(width_);
  if (plane_count_ == 1) {
    ycc_.grey_to_rgbx(luma, to, width);
  } else {
    ycc_.to_rgbx(luma, chroma(planes_[1], row, chroma_[0]), chroma(planes_[2], row, chroma_[1]), to,
                 width);
  }
}

/// A component's samples for a row of pixels: in the plane, or computed in `room`.
const std::uint8_t* BaselineDecoder::chroma(Plane& plane, std::int32_t row,
                                            std::vector<std::uint8_t>& room) {
  const std::int32_t nearer = chroma_row(row, false), farther = chroma_row(row, true);
  if (!wide_) {
    if (!smooth_down_) return plane.at(left_, nearer);
    upsample_.between(plane.at(left_, nearer), plane.at(left_, farther), room.data(),
                      static_cast<std::size_t>(width_), row % 2 == 0 ? 1 : 2);
    return room.data();
  }
  const std::int32_t first = left_ / 2;
  const auto count = static_cast<std::size_t>(width_) / 2;
  if (!smooth_across_) {
    upsample_.repeat(plane.at(first, nearer), room.data(), count);
    return room.data();
  }
  const std::int32_t begin = plane.columns.first;
  const auto columns = static_cast<std::size_t>(plane.columns.end - begin);
  std::uint16_t* const sums = sums_.data() + kSumsBefore;
  if (smooth_down_) {
    upsample_.blend(plane.at(begin, nearer), plane.at(begin, farther), sums, columns);
  } else {
    upsample_.widen(plane.at(begin, nearer), sums, columns);
  }
  sums[-1] = sums[0];
  sums[columns] = sums[columns - 1];
  (smooth_down_ ? upsample_.smooth_blended : upsample_.smooth)(sums + (first - begin), room.data(),
                                                               count);
  return room.data();
}

}  // namespace penstock::jpeg
