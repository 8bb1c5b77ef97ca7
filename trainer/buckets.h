// SPDX-License-Identifier: Apache-2.0
// How the gradients of a model are cut into buckets, each exchanged as one tensor. Gradients lie in
// one arena in the order in which backward finishes them, so that a bucket is a range of it and
// nothing is copied to fuse small tensors:
//
//   | fc.weight | fc.bias  bn.shift  bn.scale  conv.weight ... | ...     | conv1.weight |
//   |  bucket 0 |                  bucket 1                    |   ...   | last bucket  |
//
// Pure arithmetic over addresses; no gradient is read. A plan is a function of layout and limits
// alone, so that ranks of the same model have the same one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/backend.h"

namespace penstock {

/// The largest buckets, in bytes. The defaults are those of PyTorch's DistributedDataParallel: a
/// small one first, so that the exchange begins early. Two rules of tf_cnn_benchmarks stand instead
/// where they are set, at most one of them.
struct BucketLimits {
  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  std::size_t first_bytes = 1 * kMiB;  ///< of the first bucket; 0: as the others
  std::size_t bytes = 25 * kMiB;       ///< of the others; 0: one bucket holds everything
  /// --gradient-repacking: as many equal pieces of all gradients, whatever they cut through. They
  /// are complete once all gradients are. 0: off.
  std::size_t pieces = 0;
  /// --agg-small-grads-max-bytes: tensors of at most so many bytes that follow each other are
  /// buckets of up to `small_group` tensors, all others of one. 0: off.
  std::size_t small_bytes = 0;
  std::size_t small_group = 10;
};

/// A bucket as elements of the arena.
struct BucketRange {
  std::size_t first = 0, count = 0;
  std::size_t parameters = 0;  ///< whose gradients it waits for
  bool operator==(const BucketRange&) const = default;
};

/// `edges`: where the gradient of each parameter begins, ascending, and where the last one ends. At
/// least one edge. One empty range where there are no parameters.
std::vector<BucketRange> plan_buckets(std::span<const std::size_t> edges,
                                      const BucketLimits& limits);

struct Bucket {
  Tensor gradients;            ///< the range of the arena
  std::size_t parameters = 0;  ///< it is complete once that many of its own have their gradients
};

class BucketPlan {
 public:
  /// A bucket takes one parameter behind the other as long as it stays within its limit; one that
  /// exceeds the limit is a bucket of its own. The buckets cover the whole arena, what lies between
  /// parameters included, and borrow it. A set without parameters has one empty bucket, in which
  /// ranks only meet.
  BucketPlan(const ParameterSet& set, const BucketLimits& limits);

  std::span<const Bucket> buckets() const noexcept { return buckets_; }
  /// The bucket that waits for a parameter's gradient, by the parameter's index in the set: the one
  /// that holds it, and of equal pieces the first.
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_.at(parameter); }
  /// How many parameters each bucket waits for.
  std::span<const std::size_t> parameters() const noexcept { return parameters_; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;   // by parameter
  std::vector<std::size_t> parameters_;  // by bucket
};

/// Which buckets of one step are complete.
class BucketProgress {
 public:
  /// Borrows the plan.
  explicit BucketProgress(const BucketPlan& plan) : plan_(plan) { begin(); }
  /// A new step: none is.
  void begin();
  /// One more gradient is there. How many buckets are complete now, from the first one on.
  std::size_t complete(std::size_t parameter);

 private:
  const BucketPlan& plan_;
  std::vector<std::size_t> missing_;  // by bucket: parameters without gradients
  std::size_t complete_ = 0;          // buckets
};

}  // namespace penstock
