// SPDX-License-Identifier: Apache-2.0
// What protozero lacks to read messages from bytes: spans in place of its views of characters, and
// DataError in place of its exceptions.
#pragma once

#include <cstddef>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <string_view>

#include "dataflow/error.h"

namespace penstock::datasets {

inline protozero::data_view view_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> bytes_of(protozero::data_view view) noexcept {
  return std::as_bytes(std::span(view.data(), view.size()));
}

/// Text, bytes, a message or packed numbers.
inline bool has_bytes(const protozero::pbf_reader& field) noexcept {
  return field.wire_type() == protozero::pbf_wire_type::length_delimited;
}

/// Calls `read`. Throws DataError if it finds that the message is not valid.
template <typename Read>
void read_message(std::string_view what, const Read& read) {
  try {
    read();
  } catch (const protozero::exception& error) {
    throw DataError("{} is no valid protocol buffer ({})", what, error.what());
  }
}

}  // namespace penstock::datasets
