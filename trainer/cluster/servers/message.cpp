// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/message.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::cluster {
namespace {

using values::value_at;

[[noreturn]] void refuse(std::string_view field, const std::string& found,
                         const std::string& expected) {
  throw DataError("message to a parameter server: its {} is {}; expected {}", field, found,
                  expected);
}

void check_number(std::string_view field, double value) {
  if (!std::isfinite(value)) refuse(field, fmt::format("{}", value), "a finite number");
}

}  // namespace

std::array<std::byte, kHeaderBytes> to_bytes(const ServerHeader& header) noexcept {
  return std::bit_cast<std::array<std::byte, kHeaderBytes>>(header);
}

ServerHeader parse_header(std::span<const std::byte> bytes, std::size_t data_bytes) {
  if (bytes.size() != kHeaderBytes) {
    refuse("header", fmt::format("{} bytes long", bytes.size()), std::to_string(kHeaderBytes));
  }
  const auto header = value_at<ServerHeader>(bytes, 0);
  if (header.magic != kServerMagic) {
    refuse("magic number", fmt::format("{:#010x}", header.magic),
           fmt::format("{:#010x}", kServerMagic));
  }
  if (header.protocol != kServerVersion) {
    refuse("version", std::to_string(header.protocol), std::to_string(kServerVersion));
  }
  const auto kind = static_cast<std::uint16_t>(header.kind);
  if (kind < 1 || kind > static_cast<std::uint16_t>(kLastKind)) {
    refuse("kind", std::to_string(kind),
           fmt::format("1 to {}", static_cast<std::uint16_t>(kLastKind)));
  }
  if (header.length != data_bytes) {
    refuse("length", std::to_string(header.length),
           fmt::format("the {} bytes of data", data_bytes));
  }
  if (header.step > INT64_MAX) refuse("step", std::to_string(header.step), "at most 2^63 - 1");
  check_number("learning rate", header.learning_rate);
  check_number("weight decay", header.weight_decay);
  check_number("gradient clip", header.gradient_clip);
  check_number("gradient scale", header.gradient_scale);
  check_number("value", header.value);
  return header;
}

std::string join_texts(std::span<const std::string> texts) {
  std::string joined;
  for (const std::string& text : texts) {
    const auto length = static_cast<std::uint32_t>(text.size());
    joined.append(reinterpret_cast<const char*>(&length), sizeof length);
    joined += text;
  }
  return joined;
}

std::vector<std::string> split_texts(std::span<const std::byte> bytes, std::size_t count) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    if (texts.size() == count || bytes.size() < sizeof(std::uint32_t)) break;
    const auto length = value_at<std::uint32_t>(bytes, 0);
    bytes = bytes.subspan(sizeof length);
    if (length > bytes.size()) {
      refuse("text", fmt::format("{} bytes long", length), fmt::format("at most {}", bytes.size()));
    }
    texts.emplace_back(text_of(bytes.first(length)));
    bytes = bytes.subspan(length);
  }
  if (texts.size() != count || !bytes.empty()) {
    refuse("number of texts",
           fmt::format("{}, with {} bytes behind them", texts.size(), bytes.size()),
           fmt::format("{}, and nothing behind", count));
  }
  return texts;
}

std::string_view to_string(MessageKind kind) noexcept {
  constexpr std::string_view kNames[] = {"?",      "hello",    "welcome", "refused", "beat",
                                         "gather", "gathered", "layout",  "first",   "push",
                                         "pull",   "answer",   "lost",    "goodbye", "read_model",
                                         "model",  "no_model"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace penstock::cluster
