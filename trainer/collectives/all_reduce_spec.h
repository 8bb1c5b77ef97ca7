// SPDX-License-Identifier: Apache-2.0
// tf_cnn_benchmarks' --all_reduce_spec: which all-reduce algorithm adds tensors of which size.
//
//   spec  = range { ":" limit ":" range }     tensors of up to `limit` elements take the range
//   range = algorithm [ "#" shards ]          before it, larger ones look further
//   limit = digits [ k | K | M | G | T ]      powers of 1024
//
// Limits count elements: its help says bytes, its program compares elements. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// NVIDIA's library, which no algorithm of ours stands for.
inline constexpr std::string_view kNccl = "nccl";

struct AllReduceRange {
  std::string algorithm{};  ///< of all_reduce_table(), or kNccl
  std::int32_t shards = 1;
  std::uint64_t max_elements = std::numeric_limits<std::uint64_t>::max();

  bool operator==(const AllReduceRange&) const = default;
};

/// In ascending order of limits; the last one has none. At least one.
using AllReduceSpec = std::vector<AllReduceRange>;

/// Its algorithms' names become ours; ours are taken as well:
///
///   nccl                         itself
///   xring, collective            ring
///   pscpu, psgpu                 gather-add, always on rank 0
///   nccl/xring                   hierarchical
///   nccl/rechd                   hierarchical-halving-doubling
///   nccl/pscpu, pscpu/pscpu      hierarchical-gather-add
///
/// A name with a slash has two levels: inside a worker, and between workers. Shards are pieces of
/// a tensor that are exchanged one after another here; there they are exchanged at a time, and
/// pscpu and psgpu spread them over devices.
///
/// Throws ConfigError, which names `flag`, for text that is not of this form, and for limits that
/// do not ascend, which there would leave a range unused.
AllReduceSpec parse_all_reduce_spec(std::string_view text, std::string_view flag);

}  // namespace penstock
