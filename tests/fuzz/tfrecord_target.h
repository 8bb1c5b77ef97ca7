// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a record: as a whole record, and
// as the Example in one. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/tfrecord.h"

namespace penstock {

/// Whether they were an Example with an image and a label.
inline bool try_example(std::span<const std::byte> bytes) {
  try {
    static_cast<void>(list_example_keys(bytes));
    const ExampleView view = parse_example(bytes, {"image", "label"});
    if (!view.image || !view.label) return false;
    if (!view.image->empty() &&
        (view.image->data() < bytes.data() ||
         view.image->data() + view.image->size() > bytes.data() + bytes.size())) {
      throw std::logic_error("an image outside the record");
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

inline void try_tfrecord(std::span<const std::byte> bytes) {
  static_cast<void>(try_example(bytes));
  for (const bool check : {true, false}) {
    try {
      const std::span<const std::byte> data = tfrecord_data(bytes, check);
      if (data.size() + kTfRecordFrame != bytes.size()) {
        throw std::logic_error("bytes that nothing accounts for");
      }
    } catch (const DataError&) {
    }
  }
}

/// Examples with the label packed, or not, with unknown fields, and in a record.
inline std::vector<std::vector<std::byte>> tfrecord_corpus() {
  const auto field = [](int number, const std::string& bytes) {  // of fewer than 128 bytes
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  };
  const auto entry = [&](const std::string& key, const std::string& feature) {
    return field(1, field(1, key) + field(2, feature));
  };
  const std::string image = entry("image", field(1, field(1, "JPEG bytes")));
  const std::string packed = entry("label", field(3, field(1, "\xac\x02")));
  const std::string plain = entry("label", field(3, "\x08\x05"));
  const std::string unknown = std::string("\x48\x07\x55", 3) + "four" + field(12, "x");
  const std::string example = field(1, image + packed);
  std::vector<std::vector<std::byte>> corpus;
  for (const std::string& text : {example, unknown + field(1, plain + unknown + image),
                                  std::string{static_cast<char>(example.size())} +
                                      std::string(11, '\0') + example + std::string(4, '\0')}) {
    const auto bytes = std::as_bytes(std::span(text));
    corpus.emplace_back(bytes.begin(), bytes.end());
  }
  return corpus;
}

}  // namespace penstock
