// SPDX-License-Identifier: Apache-2.0
#include "trainer/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "trainer/model.h"

namespace penstock {
namespace {

constexpr std::size_t kMiB = BucketLimits::kMiB;

/// Parameters with these numbers of elements, each followed by a gap of `gap` elements.
class Arena {
 public:
  explicit Arena(const std::vector<std::size_t>& counts, std::size_t gap = 0)
      : elements_(std::make_unique_for_overwrite<float[]>(
            std::accumulate(counts.begin(), counts.end(), gap * counts.size()))) {
    std::size_t first = 0;
    for (const std::size_t count : counts) {
      set_.parameters.push_back({{}, {}, {elements_.get() + first, count}});
      first += count + gap;
    }
    set_.gradients = {elements_.get(), first};
  }
  const ParameterSet& set() const { return set_; }

 private:
  std::unique_ptr<float[]> elements_;  // never touched, so large arenas take no memory
  ParameterSet set_;
};

std::vector<std::size_t> counts_of(const BucketPlan& plan) {
  std::vector<std::size_t> counts;
  for (const Bucket& bucket : plan.buckets()) counts.push_back(bucket.gradients.count);
  return counts;
}

std::vector<std::size_t> parameters_of(const BucketPlan& plan) {
  std::vector<std::size_t> counts;
  for (const Bucket& bucket : plan.buckets()) counts.push_back(bucket.parameters);
  return counts;
}

/// In the order in which the backward pass completes them: nodes from the last to the first.
std::vector<std::size_t> gradients_of_resnet50() {
  const ModelEntry& model = find_entry(model_table(), "resnet50");
  std::vector<ParameterSpec> specs = build_graph(model, model.image, 1000).parameters();
  std::stable_sort(specs.begin(), specs.end(),
                   [](const auto& a, const auto& b) { return a.node > b.node; });
  std::vector<std::size_t> counts;
  for (const ParameterSpec& spec : specs) counts.push_back(static_cast<std::size_t>(spec.count()));
  return counts;
}

using Counts = std::vector<std::size_t>;

TEST(Buckets, ResNet50sGradientsAreTheirPublishedNumberOnceEach) {
  const Arena arena(gradients_of_resnet50());
  for (const std::size_t bytes : {std::size_t{1}, kMiB, 25 * kMiB, std::size_t{0}}) {
    const BucketPlan plan(arena.set(), {.bytes = bytes});
    const Counts counts = counts_of(plan), parameters = parameters_of(plan);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), 25'557'032U);
    EXPECT_EQ(std::accumulate(parameters.begin(), parameters.end(), std::size_t{0}), 161U);
    const float* next = static_cast<const float*>(arena.set().gradients.data);
    for (const Bucket& bucket : plan.buckets()) {
      EXPECT_EQ(bucket.gradients.data, next);
      next += bucket.gradients.count;
    }
  }
}

TEST(Buckets, ResNet50HasAsManyAsDistributedDataParallelMakesOfIt) {
  // 102.2 MB in buckets of at most 25 MiB, after the bucket of the classifier, whose 2048 x 1000
  // weights exceed 1 MiB.
  const Arena arena(gradients_of_resnet50());
  const BucketPlan plan(arena.set(), BucketLimits{});
  ASSERT_EQ(plan.buckets().size(), 5U);
  EXPECT_EQ(plan.buckets()[0].gradients.count, 2048U * 1000U);
  EXPECT_EQ(plan.buckets()[0].parameters, 1U);
  for (const Bucket& bucket : plan.buckets().subspan(1)) {
    EXPECT_LE(bucket.gradients.count * sizeof(float), 25 * kMiB);
  }
}

TEST(Buckets, TheFirstHasALimitOfItsOwn) {
  const Arena arena({1, 1, 1, 1, 1, 1, 1});
  const BucketPlan plan(arena.set(), {.first_bytes = 8, .bytes = 12});
  EXPECT_EQ(counts_of(plan), (Counts{2, 3, 2}));
  EXPECT_EQ(plan.bucket_of(1), 0U);
  EXPECT_EQ(plan.bucket_of(2), 1U);
  EXPECT_EQ(plan.bucket_of(6), 2U);
}

TEST(Buckets, WithoutALimitOfItsOwnTheFirstIsAsTheOthers) {
  const Arena arena({1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(counts_of(BucketPlan(arena.set(), {.first_bytes = 0, .bytes = 12})), (Counts{3, 3, 1}));
}

TEST(Buckets, AParameterAboveTheLimitIsABucketOfItsOwn) {
  const Arena arena({1, 1, 9, 1, 1});
  const BucketPlan plan(arena.set(), {.first_bytes = 0, .bytes = 12});
  EXPECT_EQ(counts_of(plan), (Counts{2, 9, 2}));
  EXPECT_EQ(parameters_of(plan), (Counts{2, 1, 2}));
}

TEST(Buckets, OneByteMakesABucketOfEveryParameter) {
  const Arena arena({3, 1, 2});
  EXPECT_EQ(counts_of(BucketPlan(arena.set(), {.first_bytes = 1, .bytes = 1})), (Counts{3, 1, 2}));
}

TEST(Buckets, NoLimitMakesOneBucket) {
  const Arena arena({3, 1, 2});
  const BucketPlan plan(arena.set(), {.first_bytes = 4, .bytes = 0});
  EXPECT_EQ(counts_of(plan), (Counts{6}));
  EXPECT_EQ(parameters_of(plan), (Counts{3}));
}

TEST(Buckets, WhatLiesBetweenParametersBelongsToThem) {
  const Arena arena({3, 1, 2}, 5);
  EXPECT_EQ(counts_of(BucketPlan(arena.set(), {.first_bytes = 1, .bytes = 1})), (Counts{8, 6, 7}));
}

TEST(Buckets, EqualPiecesCutThroughParametersAndWaitForAllOfThem) {
  const Arena arena({5, 1, 4, 1});
  const BucketPlan plan(arena.set(), {.pieces = 3});
  EXPECT_EQ(counts_of(plan), (Counts{3, 4, 4}));
  EXPECT_EQ(parameters_of(plan), (Counts{4, 0, 0}));
  for (std::size_t parameter = 0; parameter < 4; ++parameter) {
    EXPECT_EQ(plan.bucket_of(parameter), 0U);
  }
  EXPECT_EQ(counts_of(BucketPlan(arena.set(), {.pieces = 100})), Counts(11, 1)) << "none is empty";
  EXPECT_EQ(counts_of(BucketPlan(ParameterSet{}, {.pieces = 4})), (Counts{0}));
}

TEST(Buckets, SmallNeighboursAreGroupedAndAllOthersStandAlone) {
  const Arena arena({1, 2, 9, 2, 2, 2, 1, 9, 1});
  const BucketPlan plan(arena.set(), {.small_bytes = 8, .small_group = 3});
  EXPECT_EQ(counts_of(plan), (Counts{3, 9, 6, 1, 9, 1}));
  EXPECT_EQ(parameters_of(plan), (Counts{2, 1, 3, 1, 1, 1}));
  EXPECT_EQ(counts_of(BucketPlan(arena.set(), {.small_bytes = 1})).size(), 9U) << "none is small";
}

TEST(Buckets, OfNoParametersThereIsAnEmptyOne) {
  const BucketPlan plan(ParameterSet{}, BucketLimits{});
  EXPECT_EQ(counts_of(plan), (Counts{0}));
  EXPECT_EQ(parameters_of(plan), (Counts{0}));
}

}  // namespace
}  // namespace penstock
