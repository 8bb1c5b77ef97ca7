// SPDX-License-Identifier: Apache-2.0
// Tests kernels over the arenas of weights and gradients, at aligned and unaligned addresses.
#include "tests/trainer/backends/gpu/kernel_data.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {
namespace {

/// The first element of a slice, counted from an aligned address, and its length.
struct Slice {
  std::size_t first, count;
};
constexpr Slice kSlices[] = {{0, 0}, {0, 1}, {0, 4096}, {4, 30003}, {1, 5}, {3, 9001}, {2, 2}};

TEST(GpuArena, NarrowingRoundsEachWeight) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const Slice& slice : kSlices) {
      Random random(1);
      Floats from = random_floats(slice.first + slice.count + 1, random, -2, 3);
      Elements to(type, from.size());
      std::byte* const at = static_cast<std::byte*>(to.data()) + slice.first * 2;
      launch_on_host(NarrowWeights{from.floats() + slice.first, at, type, slice.count});
      for (std::size_t i = 0; i < from.size(); ++i) {
        if (i < slice.first || i >= slice.first + slice.count) {
          ASSERT_TRUE(std::isnan(to[i]));
        } else {
          EXPECT_ROUNDED(to[i], from[i], type, 0);
        }
      }
    }
  }
}

/// Chunks that begin at any element, some of them flagged, with gaps that belong to no chunk.
struct Chunks {
  std::vector<ArenaChunk> of;
  std::size_t elements = 0;
};
Chunks some_chunks() {
  Chunks chunks;
  bool flag = true;
  for (const std::uint32_t count : {kChunkElements, 1U, 7U, 64U, 1000U, 5000U, 4U}) {
    chunks.of.push_back({chunks.elements, count, flag});
    chunks.elements += count + 2;
    flag = !flag;
  }
  return chunks;
}
/// The chunk that holds an element, or null.
const ArenaChunk* holder_of(const Chunks& chunks, std::size_t i) {
  for (const ArenaChunk& chunk : chunks.of) {
    if (i >= chunk.first && i < chunk.first + chunk.count) return &chunk;
  }
  return nullptr;
}

TEST(GpuArena, WideningTakesShortGradientsWhereTheyAre) {
  const Chunks chunks = some_chunks();
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const float loss_scale : {1.F, 128.F, 3.F}) {
      Random random(2);
      Floats wide = random_floats(chunks.elements, random, -2, 3);
      const Elements before = wide.copy();
      const Elements narrow = Elements::random(type, chunks.elements, random);
      const StepScalars scalars{.loss_scale = loss_scale};
      launch_on_host(WidenGradients{narrow.data(), type, wide.floats(), chunks.of.data(),
                                    static_cast<std::int32_t>(chunks.of.size()), &scalars});
      for (std::size_t i = 0; i < chunks.elements; ++i) {
        const ArenaChunk* const chunk = holder_of(chunks, i);
        if (chunk == nullptr) {
          ASSERT_EQ(wide[i], before[i]);
        } else {
          const double value = (chunk->flag ? narrow[i] : before[i]) / double{loss_scale};
          EXPECT_ROUNDED(wide[i], value, DType::f32, 0);
        }
      }
    }
  }
}

TEST(GpuArena, OneElementThatIsNotFiniteIsFound) {
  for (const Slice& slice : kSlices) {
    Random random(3);
    Floats values = random_floats(slice.first + slice.count, random, -1, 1);
    std::vector<std::int32_t> partial(kFiniteBlocks);
    const auto all_finite = [&] {
      partial.assign(kFiniteBlocks, -1);
      launch_on_host(CheckFinite{values.floats() + slice.first, slice.count, partial.data()});
      for (const std::int32_t part : partial) EXPECT_TRUE(part == 0 || part == 1);
      return std::ranges::count(partial, 1) == kFiniteBlocks;
    };
    EXPECT_TRUE(all_finite());
    if (slice.count == 0) continue;
    for (const std::size_t place : {std::size_t{0}, slice.count / 2, slice.count - 1}) {
      for (const double wrong : {double{INFINITY}, double{-INFINITY}, double{NAN}}) {
        values.set(slice.first + place, wrong);
        EXPECT_FALSE(all_finite()) << place;
      }
      values.set(slice.first + place, std::numeric_limits<float>::max());
      EXPECT_TRUE(all_finite());
    }
  }
}

TEST(GpuArena, SlicesOf16BitsAreSummedInF32AndRoundedOnce) {
  constexpr std::int32_t kRanks = 3;
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const Slice& slice : kSlices) {
      Random random(4);
      std::vector<Elements> tensors, before;
      SumSlices call{.ranks = kRanks, .first = slice.first, .count = slice.count, .type = type};
      for (std::int32_t r = 0; r < kRanks; ++r) {
        Random again = random;
        tensors.push_back(Elements::random(type, slice.first + slice.count + 3, random, -1, 1));
        before.push_back(Elements::random(type, slice.first + slice.count + 3, again, -1, 1));
        call.tensors[r] = tensors.back().data();
      }
      launch_on_host(call);
      for (std::size_t i = 0; i < before[0].size(); ++i) {
        const bool inside = i >= slice.first && i < slice.first + slice.count;
        const double sum = before[0][i] + before[1][i] + before[2][i];
        for (std::size_t r = 0; r < tensors.size(); ++r) {
          if (inside) {
            ASSERT_EQ(tensors[r][i], tensors[0][i]);
            EXPECT_ROUNDED(tensors[r][i], sum, type, 3);
          } else {
            ASSERT_EQ(tensors[r][i], before[r][i]);
          }
        }
      }
    }
  }
}

TEST(GpuArena, SumsOf16BitsBecomeTheSameNumbersInF32) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const Slice& slice : kSlices) {
      Random random(5);
      Elements from = Elements::random(type, slice.first + slice.count + 3, random, -1, 1);
      Floats to(from.size());
      launch_on_host(WidenSums{static_cast<const std::byte*>(from.data()) + slice.first * 2, type,
                               to.floats() + slice.first, slice.count});
      for (std::size_t i = 0; i < from.size(); ++i) {
        if (i < slice.first || i >= slice.first + slice.count) {
          ASSERT_TRUE(std::isnan(to[i]));
        } else {
          ASSERT_EQ(to[i], from[i]);
        }
      }
    }
  }
}

TEST(GpuArena, SlicesAreSummedInTheOrderOfRanks) {
  for (const std::int32_t ranks : {1, 3, kMaxRanks}) {
    for (const std::int32_t root : {-1, 0, ranks - 1}) {
      for (const Slice& slice : kSlices) {
        Random random(4);
        std::vector<Floats> tensors;
        SumSlices call{.ranks = ranks, .root = root, .first = slice.first, .count = slice.count};
        for (std::int32_t r = 0; r < ranks; ++r) {
          tensors.push_back(random_floats(slice.first + slice.count + 3, random, -1, 1));
          call.tensors[r] = tensors.back().floats();
        }
        std::vector<Floats> before;
        for (const Floats& tensor : tensors) before.emplace_back(tensor.copy());
        launch_on_host(call);
        for (std::size_t i = 0; i < before[0].size(); ++i) {
          auto sum = static_cast<float>(before[0][i]);
          for (std::size_t r = 1; r < tensors.size(); ++r) {
            sum += static_cast<float>(before[r][i]);
          }
          const bool inside = i >= slice.first && i < slice.first + slice.count;
          for (std::size_t r = 0; r < tensors.size(); ++r) {
            const bool gets = inside && (root < 0 || index_of(root) == r);
            ASSERT_EQ(tensors[r][i], gets ? sum : before[r][i]);
          }
        }
      }
    }
  }
}

/// A rule in the user's notation, and as the kernel's constants.
struct Rule {
  const char* text;
  UpdateRule rule;
  double constants[3];
};
constexpr Rule kRules[] = {
    {"sgd", UpdateRule::sgd, {}},
    {"momentum:momentum=0.8,nesterov=false", UpdateRule::momentum, {0.8}},
    {"momentum:momentum=0.8,nesterov=true", UpdateRule::nesterov, {0.8}},
    {"rmsprop:decay=0.9,momentum=0.7,epsilon=0.5", UpdateRule::rmsprop, {0.9, 0.7, 0.5}},
    {"adam:beta1=0.9,beta2=0.999,epsilon=1e-8", UpdateRule::adam, {0.9, 0.999, 1e-8}},
};

/// The arenas of one set of weights.
struct Arenas {
  explicit Arenas(std::size_t count) {
    Random random(5);
    for (const double size : {1., 8., 0., 0.}) {
      of.push_back(random_floats(count, random, -size, size));
    }
  }
  float* at(std::size_t arena, std::size_t i) { return of[arena].floats() + i; }
  std::vector<Floats> of;  ///< weights, gradients, both states
};

/// Computes one step on the host by the rule that every backend follows.
void update_on_host(const OptimizerEntry::Rule& rule, const Hyper& hyper, const Chunks& chunks,
                    Arenas& arenas) {
  for (const ArenaChunk& chunk : chunks.of) {
    Hyper own = hyper;
    if (!chunk.flag) own.weight_decay = 0;
    UpdateRange range;
    range.weight = {arenas.at(0, chunk.first), chunk.count};
    range.gradient = {arenas.at(1, chunk.first), chunk.count};
    range.state = {std::span(arenas.at(2, chunk.first), chunk.count),
                   std::span(arenas.at(3, chunk.first), chunk.count)};
    range.gradient_scale = 0.25F;
    rule(own, range);
  }
}

UpdateWeights call_of(const Rule& rule, const Chunks& chunks, Arenas& arenas, Floats& squares) {
  UpdateWeights call{.rule = rule.rule,
                     .weights = arenas.at(0, 0),
                     .gradients = arenas.at(1, 0),
                     .state = {arenas.at(2, 0), arenas.at(3, 0)},
                     .gradient_scale = 0.25F,
                     .chunks = chunks.of.data(),
                     .chunk_count = static_cast<std::int32_t>(chunks.of.size()),
                     .squares = squares.floats()};
  std::copy_n(rule.constants, 3, call.constants);
  return call;
}

TEST(GpuUpdate, EveryRuleIsThatOfTheHost) {
  const Chunks chunks = some_chunks();
  for (const Rule& rule : kRules) {
    SCOPED_TRACE(rule.text);
    const ComponentText parts = parse_component(rule.text);
    const OptimizerEntry& entry = find_entry(optimizer_table(), parts.name);
    const Options options(entry.name, entry.options, parts);
    const OptimizerEntry::Rule on_host = entry.make(options);
    Arenas expected(chunks.elements), arenas(chunks.elements);
    Floats squares(chunks.of.size());
    StepScalars scalars;
    UpdateWeights call = call_of(rule, chunks, arenas, squares);
    call.scalars = &scalars;
    for (std::int64_t step = 0; step < 4; ++step) {
      scalars.hyper = {.learning_rate = 0.05F,
                       .weight_decay = 0.1F,
                       .gradient_clip = step % 2 == 0 ? 0.F : 1.F,
                       .step = step * 400};
      for (std::size_t k = 0; k < chunks.of.size(); ++k) {
        const ArenaChunk& chunk = chunks.of[k];
        double sum = 0;
        for (std::size_t i = 0; i < chunk.count; ++i) {
          sum += std::pow(arenas.of[0][chunk.first + i], 2);
        }
        squares.set(k, chunk.flag ? sum : 0);
      }
      const Floats expected_squares(squares.copy());
      update_on_host(on_host, scalars.hyper, chunks, expected);
      launch_on_host(call);
      for (std::size_t k = 0; k < chunks.of.size(); ++k) {
        // 64 squares per thread, then a tree.
        ASSERT_NEAR(squares[k], expected_squares[k], 16 * 0x1p-24 * expected_squares[k]);
      }
      for (std::size_t arena = 0; arena < 4; ++arena) {
        for (std::size_t i = 0; i < chunks.elements; ++i) {
          // The same operations in the same order; a compiler may fuse some.
          const double value = expected.of[arena][i];
          ASSERT_NEAR(arenas.of[arena][i], value, 0x1p-21 * (1 + std::abs(value))) << i;
        }
      }
    }
  }
}

TEST(GpuUpdate, NothingChangesWhereGradientsAreNotFinite) {
  const Chunks chunks = some_chunks();
  for (const Rule& rule : kRules) {
    Arenas arenas(chunks.elements);
    const Arenas before(chunks.elements);
    Floats squares(chunks.of.size()), again(chunks.of.size());
    const StepScalars scalars{};
    std::vector<std::int32_t> finite(kFiniteBlocks, 1);
    finite[200] = 0;
    UpdateWeights call = call_of(rule, chunks, arenas, squares);
    call.scalars = &scalars;
    call.finite = finite.data();
    launch_on_host(call);
    for (std::size_t arena = 0; arena < 4; ++arena) {
      EXPECT_TRUE(arenas.of[arena].same_bits(before.of[arena]));
    }
    EXPECT_GT(squares[0], 0);
    finite[200] = 1;
    call.squares = again.floats();
    launch_on_host(call);
    EXPECT_FALSE(arenas.of[0].same_bits(before.of[0]));
    EXPECT_TRUE(squares.same_bits(again));
  }
}

}  // namespace
}  // namespace penstock::gpu
