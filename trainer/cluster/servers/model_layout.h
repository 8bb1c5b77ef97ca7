// SPDX-License-Identifier: Apache-2.0
// How the weights of a run are cut into parts, each on one parameter server: what workers plan, all
// of them alike, and what worker 0 tells the servers, who know no model.
//
//   layout  := u32 rule, u32 length, optimizer text, u32 parts, then the parts of this server
//   part    := u32 key, u32 fixed, u32 segments, then segments := u32 elements, u32 decays
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/backend.h"
#include "trainer/placement.h"

namespace penstock {

/// What a server does with the gradients of a part.
enum class ServerRule : std::uint32_t {
  together,    ///< adds those of all workers, applies the sum once: the mean of all, if scaled so
  one_by_one,  ///< applies each worker's own on arrival; answers once those of all are applied
  on_arrival,  ///< applies each worker's own on arrival, and answers at once
  sum,         ///< adds those of all workers and answers the sum; workers apply it
};
std::string_view to_string(ServerRule rule) noexcept;

/// Consecutive elements that are updated alike.
struct Segment {
  std::uint32_t elements = 0;
  bool decays = true;
  bool operator==(const Segment&) const = default;
};

struct Part {
  std::uint32_t key = 0;
  std::int32_t server = 0;
  bool fixed = false;             ///< running statistics: handed out, never updated
  std::size_t first = 0;          ///< element of the arena; unknown to servers
  std::size_t count = 0;          ///< elements
  std::vector<Segment> segments;  ///< of all elements
  bool operator==(const Part&) const = default;
};

struct PartPlan {
  std::vector<Part> parts;  ///< by key
};

/// Cuts the arenas of `set`: every element of weights is in one part, as `placement` places
/// tensors, and no part is longer than `part_bytes`, a multiple of 4. Every server has a part, if
/// need be one without elements. Running statistics lie on server 0.
PartPlan plan_parts(const ParameterSet& set, Placement placement, std::int32_t servers,
                    std::size_t part_bytes);
/// The same for gradients that are only added: parts of at most `part_bytes`, none of which spans
/// two tensors unless these are small, and each on the server with the fewest bytes so far.
PartPlan plan_partitions(const ParameterSet& set, std::int32_t servers, std::size_t part_bytes);

struct ModelLayout {
  ServerRule rule = ServerRule::together;
  std::string optimizer;    ///< as --optimizer has it
  std::vector<Part> parts;  ///< of one server
};

std::string write_layout(const ModelLayout& layout, std::int32_t server);
/// Throws DataError with the field, its value and what was expected.
ModelLayout parse_layout(std::span<const std::byte> bytes);

}  // namespace penstock
