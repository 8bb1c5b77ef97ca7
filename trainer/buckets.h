// SPDX-License-Identifier: Apache-2.0
// Divides the gradients of a model into buckets; each bucket is exchanged as one tensor. Gradients
// lie in one arena in the order in which backward finishes them. A bucket is therefore one range of
// it, and no copy is needed to fuse small tensors:
//
//   | fc.weight | fc.bias  bn.shift  bn.scale  conv.weight ... | ...     | conv1.weight |
//   |  bucket 0 |                  bucket 1                    |   ...   | last bucket  |
//
// The code only computes with addresses and reads no gradient. A plan depends only on the layout
// and the limits, so all ranks of one model have the same plan.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/backend.h"

namespace penstock {

/// The largest buckets, in bytes. The defaults are those of PyTorch's DistributedDataParallel: a
/// small first bucket, so that the exchange begins early. Two rules of tf_cnn_benchmarks are
/// alternatives; at most one of them is set, and it replaces the defaults.
struct BucketLimits {
  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  std::size_t first_bytes = 1 * kMiB;  ///< limit of the first bucket; 0: same as the others
  std::size_t bytes = 25 * kMiB;       ///< limit of the others; 0: one bucket holds everything
  /// --gradient-repacking: divide all gradients into this many equal pieces, across tensor borders.
  /// The pieces are complete once all gradients are. 0: off.
  std::size_t pieces = 0;
  /// --agg-small-grads-max-bytes: consecutive tensors of at most this many bytes share buckets of
  /// up to `small_group` tensors. Each larger tensor is one bucket. 0: off.
  std::size_t small_bytes = 0;
  std::size_t small_group = 10;
};

/// A bucket as a range of elements of the arena.
struct BucketRange {
  std::size_t first = 0, count = 0;
  std::size_t parameters = 0;  ///< number of gradients that it waits for
  bool operator==(const BucketRange&) const = default;
};

/// `edges`: the start of each parameter's gradient, ascending, and the end of the last one. It has
/// at least one edge. Returns one empty range if there are no parameters.
std::vector<BucketRange> plan_buckets(std::span<const std::size_t> edges,
                                      const BucketLimits& limits);

struct Bucket {
  Tensor gradients;            ///< the range of the arena
  std::size_t parameters = 0;  ///< the bucket is complete once this many gradients are
};

class BucketPlan {
 public:
  /// A bucket takes consecutive parameters until it reaches its limit. A parameter that exceeds the
  /// limit gets its own bucket. The buckets cover the whole arena, including gaps between
  /// parameters, and borrow it. A set without parameters has one empty bucket, in which ranks only
  /// meet.
  BucketPlan(const ParameterSet& set, const BucketLimits& limits);

  std::span<const Bucket> buckets() const noexcept { return buckets_; }
  /// The index of the bucket that waits for this parameter's gradient; `parameter` is its index in
  /// the set. This is the bucket that holds the gradient, but the first bucket if the buckets are
  /// equal pieces.
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_.at(parameter); }
  /// How many parameters each bucket waits for.
  std::span<const std::size_t> parameters() const noexcept { return parameters_; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;   // by parameter
  std::vector<std::size_t> parameters_;  // by bucket
};

/// Tracks which buckets of one step are complete.
class BucketProgress {
 public:
  /// Borrows the plan.
  explicit BucketProgress(const BucketPlan& plan) : plan_(plan) { begin(); }
  /// Begins a new step: no bucket is complete.
  void begin();
  /// Counts one more gradient as complete. Returns how many buckets are complete now, from the
  /// first one on.
  std::size_t complete(std::size_t parameter);

 private:
  const BucketPlan& plan_;
  std::vector<std::size_t> missing_;  // by bucket: parameters without gradients
  std::size_t complete_ = 0;          // buckets
};

}  // namespace penstock
