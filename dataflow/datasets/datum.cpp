// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/datum.h"

#include "dataflow/datasets/protobuf.h"

namespace penstock::datasets {
namespace {

void read_fields(protozero::pbf_reader message, Datum& datum) {
  constexpr auto kNumber = protozero::pbf_wire_type::varint;
  while (message.next()) {
    const protozero::pbf_tag_type field = message.tag();
    const bool is_number = message.wire_type() == kNumber;
    if ((field <= 3 || field == 5 || field == 7) && !is_number) {
      throw DataError("a Datum whose field " + std::to_string(field) + " is no number");
    }
    if (field == 4 && !has_bytes(message)) throw DataError("a Datum whose data are no bytes");
    if (field == 4) {
      datum.data = bytes_of(message.get_view());
      continue;
    }
    if (!is_number) message.skip();
    const std::uint64_t number = is_number ? message.get_uint64() : 0;
    if (field == 1) datum.channels = static_cast<std::int32_t>(number);
    if (field == 2) datum.height = static_cast<std::int32_t>(number);
    if (field == 3) datum.width = static_cast<std::int32_t>(number);
    if (field == 5) datum.label = static_cast<std::int32_t>(number);
    if (field == 6) datum.has_floats = true;
    if (field == 7) datum.encoded = number != 0;
  }
}

}  // namespace

Datum parse_datum(std::span<const std::byte> message) {
  Datum datum;
  read_message("a Datum", [&] { read_fields(protozero::pbf_reader(view_of(message)), datum); });
  return datum;
}

}  // namespace penstock::datasets
