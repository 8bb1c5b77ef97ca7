// SPDX-License-Identifier: Apache-2.0
// Sources over another one: samples read early, and one sample in place of a set.
#include "dataflow/datasets/source_over.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <latch>
#include <set>
#include <string>

#include "dataflow/error.h"
#include "tests/support/patience.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Samples of ten bytes, counted from 0. Some cannot be chosen or read. Loading calls `on_load`.
class Counting final : public Source {
 public:
  Counting(std::uint64_t size, std::set<std::uint64_t> unchosen = {},
           std::set<std::uint64_t> unread = {})
      : size_(size), unchosen_(std::move(unchosen)), unread_(std::move(unread)) {}

  bool next(Sample& sample) override {
    EXPECT_FALSE(choosing_.exchange(true)) << "two at a time";
    sample.index = count_;
    const bool more = count_ < size_;
    if (more) ++count_;
    chosen = count_;
    choosing_ = false;
    if (more && unchosen_.contains(sample.index)) throw DataError("not to be chosen");
    return more;
  }
  void load(Sample& sample) const override {
    if (on_load) on_load(sample.index);
    if (unread_.contains(sample.index)) throw DataError("not to be read");
    sample.bytes.assign(10, static_cast<std::byte>(sample.index));
  }
  SourceFacts facts() const override {
    return {.size = size_, .size_over_ranks = size_, .classes = 1};
  }

  std::function<void(std::uint64_t)> on_load;
  std::atomic<std::uint64_t> chosen{0};

 private:
  const std::uint64_t size_;
  const std::set<std::uint64_t> unchosen_, unread_;
  std::uint64_t count_ = 0;
  std::atomic<bool> choosing_{false};
};

TEST(ReadAhead, KeepsTheOrderWhateverTheReaders) {
  for (const std::int32_t readers : {1, 3, 16}) {
    auto inner = std::make_unique<Counting>(200);
    std::atomic<std::uint64_t> latest{0};
    inner->on_load = [&](std::uint64_t index) {
      for (std::uint64_t seen = latest; seen < index;) {
        if (latest.compare_exchange_weak(seen, index)) latest.notify_all();
      }
      if (index % 7 == 0 && readers > 1) latest.wait(index);  // another reader overtakes it
    };
    const auto source = datasets::read_ahead(std::move(inner),
                                             {.samples = 8, .bytes = 1 << 20, .readers = readers});
    EXPECT_EQ(source->facts().size, 200U);
    Sample sample;
    for (std::uint64_t index = 0; index < 200; ++index) {
      ASSERT_TRUE(source->next(sample));
      EXPECT_EQ(sample.index, index);
      ASSERT_EQ(sample.bytes.size(), 10U);
      EXPECT_EQ(sample.bytes[0], static_cast<std::byte>(index));
    }
    EXPECT_FALSE(source->next(sample));
    EXPECT_FALSE(source->next(sample)) << "the end stays";
  }
}

TEST(ReadAhead, HasAsManyRequestsInHandAsReaders) {
  constexpr std::int32_t kReaders = 6;
  auto inner = std::make_unique<Counting>(kReaders);
  std::latch all(kReaders);
  inner->on_load = [&](std::uint64_t) { all.arrive_and_wait(); };  // blocks forever with fewer
                                                                   // readers
  const auto source =
      datasets::read_ahead(std::move(inner), {.samples = kReaders, .readers = kReaders});
  Sample sample;
  for (int i = 0; i < kReaders; ++i) EXPECT_TRUE(source->next(sample));
}

TEST(ReadAhead, ReadsNoFurtherThanItMay) {
  for (const auto& [plan, most] :
       {std::pair{datasets::ReadAheadPlan{.samples = 5, .bytes = 1 << 20, .readers = 2}, 5U},
        {datasets::ReadAheadPlan{.samples = 50, .bytes = 30, .readers = 1}, 3U}}) {
    auto inner = std::make_unique<Counting>(1000);
    const Counting& counting = *inner;
    const auto source = datasets::read_ahead(std::move(inner), plan);
    Sample sample;
    for (std::uint64_t given = 1; given < 20; ++given) {
      ASSERT_TRUE(source->next(sample));
      EXPECT_TRUE(await([&] { return counting.chosen >= given + most; })) << "it is not read ahead";
      EXPECT_LE(counting.chosen, given + most);
    }
  }
}

TEST(ReadAhead, ASampleLargerThanAllThatMayBeHeldStillPasses) {
  const auto source = datasets::read_ahead(std::make_unique<Counting>(20),
                                           {.samples = 4, .bytes = 1, .readers = 3});
  Sample sample;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(source->next(sample));
    EXPECT_EQ(sample.index, i);
  }
  EXPECT_FALSE(source->next(sample));
}

TEST(ReadAhead, BadSamplesFailInTheirTurn) {
  const auto source = datasets::read_ahead(
      std::make_unique<Counting>(6, std::set<std::uint64_t>{1}, std::set<std::uint64_t>{4}),
      {.samples = 4, .readers = 2});
  Sample sample;
  std::string seen;
  for (int i = 0; i < 6; ++i) {
    try {
      ASSERT_TRUE(source->next(sample));
      seen += std::to_string(sample.index);
    } catch (const DataError& error) {
      seen += std::string("(") + std::to_string(sample.index) + " " + error.what() + ")";
    }
  }
  EXPECT_EQ(seen, "0(1 not to be chosen)23(4 not to be read)5");
  EXPECT_FALSE(source->next(sample));
}

TEST(ReadAhead, EndsWhileItsReadersWaitForRoom) {
  const auto source =
      datasets::read_ahead(std::make_unique<Counting>(1000), {.samples = 3, .readers = 5});
  Sample sample;
  EXPECT_TRUE(source->next(sample));
}

// ---- one sample ---------------------------------------------------------------------

/// Seven files; each file holds its name.
class RepeatedSampleTest : public SourceFixture {
 protected:
  RepeatedSampleTest() {
    for (const char* const name : {"ant/1", "ant/2", "bee/0", "bee/1", "bee/2", "bee/3", "cat/9"}) {
      const std::string file = std::string(name) + ".JPEG";
      write_text(folder_ / file, file);
    }
    plan_.epochs = -1;
    plan_.shuffle = true;
  }
  std::unique_ptr<Source> open(const std::string& source = "image-folder") const {
    const SourceEntry& entry = find_entry(source_table(), source);
    const auto set = entry.make(datasets::plan_of_whole_set(plan_),
                                Options(entry.name, entry.options, {source, {}}));
    return datasets::repeat_first_sample(*set, plan_);
  }
};

TEST_F(RepeatedSampleTest, EveryRankGetsTheFirstSampleForEverAtPositionsOfTheSet) {
  plan_.ranks = 2;
  plan_.shuffle = true;
  std::set<std::pair<std::uint64_t, std::uint64_t>> places;  // epoch, index
  for (plan_.rank = 0; plan_.rank < 2; ++plan_.rank) {
    const auto source = open();
    std::filesystem::rename(folder_ / "ant", folder_ / "gone");  // no file is read any more
    EXPECT_EQ(source->facts().files, nullptr);
    EXPECT_EQ(source->facts().classes, 3);
    EXPECT_EQ(source->facts().kind, SampleKind::encoded);
    EXPECT_EQ(source->facts().size, plan_.rank == 0 ? 4U : 3U);
    EXPECT_EQ(source->facts().size_over_ranks, 7U);
    EXPECT_TRUE(says(source->facts().note, "ant/1.JPEG'"));
    EXPECT_TRUE(says(source->facts().note, " 10 bytes"));
    Sample sample;
    const std::byte* first = nullptr;
    for (std::uint64_t i = 0; i < 3 * source->facts().size; ++i) {
      ASSERT_TRUE(source->next(sample));
      source->load(sample);
      EXPECT_EQ(text_of(sample.content()), "ant/1.JPEG");
      if (first == nullptr) first = sample.content().data();
      EXPECT_EQ(sample.content().data(), first);
      EXPECT_EQ(sample.label, 0);
      EXPECT_TRUE(sample.file.ends_with("ant/1.JPEG"));
      EXPECT_TRUE(places.emplace(sample.epoch, sample.index).second) << "a position comes twice";
    }
    std::filesystem::rename(folder_ / "gone", folder_ / "ant");
  }
  EXPECT_EQ(places.size(), 3 * 7U);
  EXPECT_EQ(places.begin()->second, 0U);
  EXPECT_EQ(*places.rbegin(), std::pair(std::uint64_t{2}, std::uint64_t{6}));
}

TEST_F(RepeatedSampleTest, EndsAndGoesOnWhereTheSetWould) {
  plan_.epochs = 2;
  plan_.first_sample = 9;
  const auto source = open();
  Sample sample;
  for (std::uint64_t i = 9; i < 14; ++i) {
    ASSERT_TRUE(source->next(sample));
    EXPECT_EQ(sample.epoch, 1U);
    EXPECT_EQ(sample.index, i - 7);
  }
  EXPECT_FALSE(source->next(sample));
  EXPECT_FALSE(source->next(sample));
}

TEST_F(RepeatedSampleTest, AFirstSampleThatCannotBeReadIsRefused) {
  write_text(folder_ / "ant/1.JPEG", "");
  const std::string error = thrown_by<ConfigError>([&] { open(); });
  EXPECT_TRUE(says(error, "ant/1.JPEG"));
  EXPECT_TRUE(says(error, "leave repeat_cached_sample out"));
  plan_.rank = 7;
  plan_.ranks = 8;
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { open(); }), "ranks"));
}

}  // namespace
}  // namespace penstock
