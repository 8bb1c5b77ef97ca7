// SPDX-License-Identifier: Apache-2.0
// Divides the weights of a run into parts, each on one parameter server. All workers compute the
// same plan, and worker 0 sends it to the servers, which do not know the model.
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

namespace penstock::cluster {

/// What a server does with the gradients of a part.
enum class ServerRule : std::uint32_t {
  together,    ///< adds the gradients of all workers, applies the sum once; scaled, it is the mean
  one_by_one,  ///< applies each worker's gradients on arrival; answers once all workers' are
               ///< applied
  on_arrival,  ///< applies each worker's gradients on arrival, and answers at once
  sum,         ///< adds the gradients of all workers and answers the sum; workers apply it
};
std::string_view to_string(ServerRule rule) noexcept;

/// Consecutive elements with the same update rule.
struct Segment {
  std::uint32_t elements = 0;
  bool decays = true;
  bool operator==(const Segment&) const = default;
};

struct Part {
  std::uint32_t key = 0;
  std::int32_t server = 0;
  bool fixed = false;             ///< running statistics: readable, never updated
  std::size_t first = 0;          ///< first element in the arena; unknown to servers
  std::size_t count = 0;          ///< elements
  std::vector<Segment> segments;  ///< cover all elements
  bool operator==(const Part&) const = default;
};

struct PartPlan {
  std::vector<Part> parts;  ///< by key
};

/// Divides the arenas of `set`. Every element of the weights is in one part, and `placement`
/// assigns tensors to servers. No part is longer than `part_bytes`, a multiple of 4. Every server
/// has a part, which may be empty. Running statistics lie on server 0.
PartPlan plan_parts(const ParameterSet& set, Placement placement, std::int32_t servers,
                    std::size_t part_bytes);
/// For gradients that servers only add: parts of at most `part_bytes`, each on the server with the
/// fewest bytes so far. Only small tensors share a part.
PartPlan plan_partitions(const ParameterSet& set, std::int32_t servers, std::size_t part_bytes);

struct ModelLayout {
  ServerRule rule = ServerRule::together;
  std::string optimizer;    ///< as given in --optimizer
  std::vector<Part> parts;  ///< the parts of one server
};

std::string write_layout(const ModelLayout& layout, std::int32_t server);
/// Throws DataError with the field, its value and the expected value.
ModelLayout parse_layout(std::span<const std::byte> bytes);

}  // namespace penstock::cluster
