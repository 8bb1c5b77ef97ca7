// SPDX-License-Identifier: Apache-2.0
// RecordIO files, read as their index too.
#include "dataflow/datasets/recordio.h"

#include <cstdint>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

std::size_t read_file(std::span<const std::byte> file) {
  std::size_t images = 0;
  Bytes joined;
  for (std::uint64_t at = 0, end = 0; at < file.size(); at = end) {
    try {
      end = datasets::recordio_end(file, at);
    } catch (const DataError&) {
      end = datasets::find_recordio(file, at + 4);
      ensure(end >= file.size() || datasets::recordio_begins(file, end), "no beginning");
      ensure(end > at && end <= file.size(), "no way forward");
      continue;
    }
    ensure(end > at && end <= file.size(), "a record outside the file");
    const std::span<const std::byte> data =
        datasets::recordio_data(file.subspan(at, end - at), joined);
    ensure(data.size() <= end - at, "more data than bytes");
    images += use_input(
        [](std::span<const std::byte> record) -> std::size_t {
          const datasets::PackedImage packed = datasets::parse_packed_image(record);
          ensure(packed.label >= 0 && packed.labels > 0 && !packed.image.empty() &&
                     packed.image.data() + packed.image.size() == record.data() + record.size(),
                 "an image that is none");
          return 1;
        },
        data);
  }
  return images;
}

std::size_t read_index(std::span<const std::byte> file) {
  const std::vector<std::uint64_t> offsets = datasets::parse_recordio_index(as_text(file));
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    ensure(offsets[i] % 4 == 0 && (i == 0 || offsets[i] > offsets[i - 1]),
           "offsets that are not sorted");
  }
  return offsets.size();
}

}  // namespace

std::size_t recordio(std::span<const std::byte> input) {
  return read_file(input) + use_input(read_index, input);
}

}  // namespace penstock::fuzz
