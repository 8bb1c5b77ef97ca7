// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "dataflow/error.h"
#include "trainer/cluster/servers/message.h"

namespace penstock::cluster {
namespace {

constexpr std::size_t kMaxElements = kMaxFrame / sizeof(float);
constexpr std::size_t kMaxParts = std::size_t{1} << 20;

/// The segments of elements [first, first + count) of the arena. Gaps between parameters do not
/// decay.
std::vector<Segment> segments_of(const ParameterSet& set, std::size_t first, std::size_t count) {
  std::vector<Segment> segments;
  const auto add = [&](std::size_t elements, bool decays) {
    if (elements == 0) return;
    if (!segments.empty() && segments.back().decays == decays) {
      segments.back().elements += static_cast<std::uint32_t>(elements);
    } else {
      segments.push_back({static_cast<std::uint32_t>(elements), decays});
    }
  };
  std::size_t at = first;
  const std::size_t end = first + count;
  for (const Parameter& parameter : set.parameters) {
    const std::size_t begin = offset_in(set.weights, parameter.weight);
    const std::size_t stop = std::min(end, begin + parameter.weight.count);
    if (stop <= at || begin >= end) continue;
    if (begin > at) add(begin - at, false);
    at = std::max(at, begin);
    add(stop - at, parameter.spec.decays());
    at = stop;
  }
  add(end - at, false);
  return segments;
}

class Planner {
 public:
  Planner(const ParameterSet& set, std::size_t part_bytes)
      : set_(set), most_(std::clamp<std::size_t>(part_bytes / sizeof(float), 1, kMaxElements)) {}

  /// Adds equal parts, as few as possible.
  void add(std::int32_t server, const ArenaRange& range) {
    const std::size_t pieces = std::max<std::size_t>(1, (range.count + most_ - 1) / most_);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t begin = range.count * piece / pieces;
      const std::size_t end = range.count * (piece + 1) / pieces;
      push(server, range.first + begin, end - begin, false);
    }
  }
  void add_fixed(std::size_t count) {
    for (std::size_t first = 0; first < count; first += most_) {
      push(0, first, std::min(most_, count - first), true);
    }
  }
  PartPlan finished() && { return std::move(plan_); }
  std::size_t most() const noexcept { return most_; }

 private:
  void push(std::int32_t server, std::size_t first, std::size_t count, bool fixed) {
    Part part{.key = static_cast<std::uint32_t>(plan_.parts.size()),
              .server = server,
              .fixed = fixed,
              .first = first,
              .count = count,
              .segments = {}};
    if (fixed) {
      part.segments = {{static_cast<std::uint32_t>(count), false}};
    } else if (count > 0) {
      part.segments = segments_of(set_, first, count);
    }
    plan_.parts.push_back(std::move(part));
  }

  const ParameterSet& set_;
  const std::size_t most_;
  PartPlan plan_;
};

/// Reads a text, one number after the other.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint32_t number(std::string_view field, std::uint64_t most) {
    std::uint32_t value = 0;
    if (bytes_.size() < sizeof value) refuse(field, "cut off", "4 bytes");
    std::memcpy(&value, bytes_.data(), sizeof value);
    if (value > most) refuse(field, std::to_string(value), fmt::format("at most {}", most));
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::string text(std::size_t length) {
    std::string result(text_of(bytes_.first(length)));
    bytes_ = bytes_.subspan(length);
    return result;
  }
  std::size_t left() const noexcept { return bytes_.size(); }
  [[noreturn]] static void refuse(std::string_view field, const std::string& found,
                                  const std::string& expected) {
    throw DataError("layout of a model's weights: its {} is {}; expected {}", field, found,
                    expected);
  }

 private:
  std::span<const std::byte> bytes_;
};

void append(std::string& text, std::size_t number) {
  const auto value = static_cast<std::uint32_t>(number);
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Part parse_part(Reader& reader) {
  Part part;
  part.key = reader.number("key", UINT32_MAX);
  part.fixed = reader.number("mark of fixed weights", 1) == 1;
  const std::size_t segments = reader.number("number of segments", reader.left() / 8);
  for (std::size_t i = 0; i < segments; ++i) {
    const std::uint32_t elements = reader.number("number of elements", kMaxElements);
    const bool decays = reader.number("mark of decay", 1) == 1;
    part.segments.push_back({elements, decays});
    part.count += elements;
  }
  if (part.count > kMaxElements) {
    Reader::refuse("part", fmt::format("{} elements", part.count),
                   fmt::format("at most {}", kMaxElements));
  }
  return part;
}

}  // namespace

std::string_view to_string(ServerRule rule) noexcept {
  constexpr std::string_view kNames[] = {
      "applies the sum of all workers' gradients once",
      "applies each worker's gradients on arrival, and workers wait for each other",
      "applies each worker's gradients on arrival", "adds gradients, which workers apply"};
  return kNames[static_cast<std::size_t>(rule)];
}

PartPlan plan_parts(const ParameterSet& set, Placement placement, std::int32_t servers,
                    std::size_t part_bytes) {
  Planner planner(set, part_bytes);
  const bool whole = placement == Placement::first || set.parameters.empty();
  std::vector<std::vector<ArenaRange>> homes(static_cast<std::size_t>(servers));
  if (whole) {
    homes.front() = {{0, set.weights.count}};
  } else {
    homes = place(placement, parameter_ranges(set), servers);
  }
  for (std::size_t server = 0; server < homes.size(); ++server) {
    if (homes[server].empty()) homes[server] = {{0, 0}};
    for (const ArenaRange& range : homes[server]) {
      planner.add(static_cast<std::int32_t>(server), range);
    }
  }
  planner.add_fixed(set.running.count);
  return std::move(planner).finished();
}

PartPlan plan_partitions(const ParameterSet& set, std::int32_t servers, std::size_t part_bytes) {
  Planner planner(set, part_bytes);
  std::vector<std::size_t> loads(static_cast<std::size_t>(servers));
  const auto add = [&](const ArenaRange& range) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += range.count;
    planner.add(static_cast<std::int32_t>(least - loads.begin()), range);
  };
  // Walks the arena from front to back, which is the order of backward. Small tensors share a part.
  ArenaRange open{};
  for (const Parameter& parameter : set.parameters) {
    const std::size_t begin = offset_in(set.weights, parameter.weight);
    const std::size_t end = begin + parameter.weight.count;
    if (open.count > 0 && end - open.first > planner.most()) {
      add(open);
      open = {begin, 0};
    }
    if (open.count == 0) open.first = begin;
    open.count = end - open.first;
    while (open.count > planner.most()) {
      add({open.first, planner.most()});
      open = {open.first + planner.most(), open.count - planner.most()};
    }
  }
  if (open.count > 0) add(open);
  for (std::size_t server = 0; server < loads.size(); ++server) {
    if (loads[server] == 0) planner.add(static_cast<std::int32_t>(server), {0, 0});
  }
  planner.add_fixed(set.running.count);
  return std::move(planner).finished();
}

std::string write_layout(const ModelLayout& layout, std::int32_t server) {
  std::string text;
  append(text, static_cast<std::size_t>(layout.rule));
  append(text, layout.optimizer.size());
  text += layout.optimizer;
  std::size_t parts = 0;
  for (const Part& part : layout.parts) parts += part.server == server ? 1 : 0;
  append(text, parts);
  for (const Part& part : layout.parts) {
    if (part.server != server) continue;
    append(text, part.key);
    append(text, part.fixed ? 1 : 0);
    append(text, part.segments.size());
    for (const Segment& segment : part.segments) {
      append(text, segment.elements);
      append(text, segment.decays ? 1 : 0);
    }
  }
  return text;
}

ModelLayout parse_layout(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ModelLayout layout;
  layout.rule =
      static_cast<ServerRule>(reader.number("rule", static_cast<std::uint32_t>(ServerRule::sum)));
  layout.optimizer = reader.text(reader.number("optimizer's length", reader.left() - 4));
  const std::size_t parts =
      reader.number("number of parts", std::min(kMaxParts, reader.left() / 12));
  std::set<std::uint32_t> keys;
  for (std::size_t i = 0; i < parts; ++i) {
    layout.parts.push_back(parse_part(reader));
    if (!keys.insert(layout.parts.back().key).second) {
      Reader::refuse("key", fmt::format("{} again", layout.parts.back().key), "each once");
    }
  }
  if (reader.left() > 0) {
    Reader::refuse("end", fmt::format("followed by {} bytes", reader.left()), "nothing behind");
  }
  return layout;
}

}  // namespace penstock::cluster
