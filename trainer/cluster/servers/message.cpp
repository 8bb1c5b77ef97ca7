// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/message.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::cluster {
namespace {

using values::value_at;

/// Byte offsets of the fields.
enum Offset : std::size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kKindAt = 6,
  kKeyAt = 8,
  kTaskAt = 12,
  kStepAt = 16,
  kLengthAt = 24,
  kRateAt = 32,
  kDecayAt = 36,
  kClipAt = 40,
  kScaleAt = 44,
  kValueAt = 48,
  kPartVersionAt = 56,
};

template <typename Value>
void write(std::span<std::byte> bytes, std::size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

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
  std::array<std::byte, kHeaderBytes> to{};
  write(to, kMagicAt, kServerMagic);
  write(to, kVersionAt, kServerVersion);
  write(to, kKindAt, static_cast<std::uint16_t>(header.kind));
  write(to, kKeyAt, header.key);
  write(to, kTaskAt, header.task);
  write(to, kStepAt, header.step);
  write(to, kLengthAt, header.length);
  write(to, kRateAt, header.learning_rate);
  write(to, kDecayAt, header.weight_decay);
  write(to, kClipAt, header.gradient_clip);
  write(to, kScaleAt, header.gradient_scale);
  write(to, kValueAt, header.value);
  write(to, kPartVersionAt, header.version);
  return to;
}

ServerHeader parse_header(std::span<const std::byte> bytes, std::size_t data_bytes) {
  if (bytes.size() != kHeaderBytes) {
    refuse("header", fmt::format("{} bytes long", bytes.size()), std::to_string(kHeaderBytes));
  }
  const auto magic = value_at<std::uint32_t>(bytes, kMagicAt);
  if (magic != kServerMagic) {
    refuse("magic number", fmt::format("{:#010x}", magic), fmt::format("{:#010x}", kServerMagic));
  }
  const auto version = value_at<std::uint16_t>(bytes, kVersionAt);
  if (version != kServerVersion) {
    refuse("version", std::to_string(version), std::to_string(kServerVersion));
  }
  const auto kind = value_at<std::uint16_t>(bytes, kKindAt);
  if (kind < 1 || kind > static_cast<std::uint16_t>(kLastKind)) {
    refuse("kind", std::to_string(kind),
           fmt::format("1 to {}", static_cast<std::uint16_t>(kLastKind)));
  }
  const ServerHeader header{.kind = static_cast<MessageKind>(kind),
                            .key = value_at<std::uint32_t>(bytes, kKeyAt),
                            .task = value_at<std::uint32_t>(bytes, kTaskAt),
                            .step = value_at<std::uint64_t>(bytes, kStepAt),
                            .length = value_at<std::uint64_t>(bytes, kLengthAt),
                            .learning_rate = value_at<float>(bytes, kRateAt),
                            .weight_decay = value_at<float>(bytes, kDecayAt),
                            .gradient_clip = value_at<float>(bytes, kClipAt),
                            .gradient_scale = value_at<float>(bytes, kScaleAt),
                            .value = value_at<double>(bytes, kValueAt),
                            .version = value_at<std::uint64_t>(bytes, kPartVersionAt)};
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
