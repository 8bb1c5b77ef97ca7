// SPDX-License-Identifier: Apache-2.0
// Parses --all_reduce_spec of tf_cnn_benchmarks: which all-reduce algorithm adds tensors of which
// size.
//
//   spec  = range { ":" limit ":" range }     the range before a limit takes tensors of up to
//   range = algorithm [ "#" shards ]          `limit` elements, the next one takes larger tensors
//   limit = digits [ k | K | M | G | T ]      powers of 1024
//
// Limits count elements: the help of tf_cnn_benchmarks says bytes, its code compares elements. Pure
// functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::collectives {

/// NVIDIA's NCCL, which is not an algorithm of Penstock.
inline constexpr std::string_view kNccl = "nccl";

struct AllReduceRange {
  std::string algorithm{};  ///< from all_reduce_table(), or kNccl
  std::int32_t shards = 1;
  std::uint64_t max_elements = std::numeric_limits<std::uint64_t>::max();

  bool operator==(const AllReduceRange&) const = default;
};

/// In ascending order of limits; the last range has no limit. At least one range.
using AllReduceSpec = std::vector<AllReduceRange>;

/// Translates the algorithm names of tf_cnn_benchmarks; also accepts Penstock's names:
///
///   nccl                         itself
///   xring, collective            ring
///   pscpu, psgpu                 gather-add, always on rank 0
///   nccl/xring                   hierarchical
///   nccl/rechd                   hierarchical-halving-doubling
///   nccl/pscpu, pscpu/pscpu      hierarchical-gather-add
///
/// A name with a slash has two levels: inside a worker, and between workers. Shards are pieces of a
/// tensor. Penstock exchanges them one after another; tf_cnn_benchmarks exchanges them at the same
/// time, and its pscpu and psgpu spread them over devices.
///
/// Throws ConfigError, which names `flag`, if the text has another form or if limits do not ascend.
/// (In tf_cnn_benchmarks, limits that do not ascend leave a range unused.)
AllReduceSpec parse_all_reduce_spec(std::string_view text, std::string_view flag);

}  // namespace penstock::collectives
