// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/datum.h"

#include <string>

#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

/// Reads protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding/).
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError("a Datum that cannot be read: at byte " + std::to_string(next_) + " " +
                    problem + "; expected a protocol buffer as Caffe writes it");
  }
  bool ended() const noexcept { return next_ == bytes_.size(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (ended()) refuse("it ends within a number");
      const auto byte = std::to_integer<std::uint64_t>(bytes_[next_++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number has more than ten bytes");
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - next_) {
      refuse("a field has " + std::to_string(count) + " bytes of the " +
             std::to_string(bytes_.size() - next_) + " that are left");
    }
    const auto taken = bytes_.subspan(next_, static_cast<std::size_t>(count));
    next_ += taken.size();
    return taken;
  }

 private:
  const std::span<const std::byte> bytes_;
  std::size_t next_ = 0;
};

}  // namespace

Datum parse_datum(std::span<const std::byte> message) {
  Reader reader(message);
  Datum datum;
  while (!reader.ended()) {
    const std::uint64_t tag = reader.varint();
    const std::uint64_t field = tag >> 3;
    std::uint64_t number = 0;
    std::span<const std::byte> bytes;
    switch (tag & 7) {
      case 0:
        number = reader.varint();
        break;
      case 1:
        reader.take(8);
        break;
      case 2:
        bytes = reader.take(reader.varint());
        break;
      case 5:
        reader.take(4);
        break;
      default:
        reader.refuse("a field has an unknown type");
    }
    const bool is_number = (tag & 7) == 0;
    if (field == 0) reader.refuse("a field has no number");
    if ((field <= 3 || field == 5 || field == 7) && !is_number) {
      reader.refuse("field " + std::to_string(field) + " is no number");
    }
    if (field == 4 && (tag & 7) != 2) reader.refuse("the data are no bytes");
    if (field == 1) datum.channels = static_cast<std::int32_t>(number);
    if (field == 2) datum.height = static_cast<std::int32_t>(number);
    if (field == 3) datum.width = static_cast<std::int32_t>(number);
    if (field == 4) datum.data = bytes;
    if (field == 5) datum.label = static_cast<std::int32_t>(number);
    if (field == 6) datum.has_floats = true;
    if (field == 7) datum.encoded = number != 0;
  }
  return datum;
}

}  // namespace penstock::datasets
