// SPDX-License-Identifier: Apache-2.0
// Python loaders in child processes: what arrives in the ring, and how faults are reported.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/values/float16.h"
#include "tests/feeders/python/python_loader_fixture.h"
#include "tests/support/patience.h"
#include "tests/support/python.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST_F(PythonLoader, BatchesArriveInOrderAndUnchanged) {
  for (const bool lends : {true, false}) {
    const std::vector<Seen> seen = take(text("counting"), 6, lends);
    ASSERT_EQ(seen.size(), 6U);
    EXPECT_EQ(firsts(seen), (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(seen[2].labels, (std::vector<std::int32_t>{4, 5}));
    EXPECT_EQ(seen[2].pixels.back(), std::byte{5});
    EXPECT_GE(probe_.values().at(lends ? "bytes_lent" : "bytes_copied"), 6 * 144);
  }
}

/// The device reports completion only by events: a slot may be filled again as soon as its loan is
/// read, before the loader has heard of it. Each copy takes 14 ms.
TEST_F(PythonLoader, ASlowDeviceGetsEveryBatchAndTheLoaderEverySlot) {
  HostDevice slow(clock_, {.copy_bytes_per_s = 1e4});
  std::array<Device*, 1> readers{&slow};
  BatchRing ring(spec_, 2, slow, MemoryKind::host, readers, Order::strict, clock_);
  ring.accept_foreign();
  const std::unique_ptr<Feeder> feeder = make(text("counting", "args='batches=12'"));
  std::jthread thread([&](const std::stop_token& stop) { run_to_end(*feeder, ring, stop); });
  const std::unique_ptr<Stream> stream = slow.make_stream();
  std::vector<std::byte> copy(spec_.pixel_bytes());
  for (int batch = 0; batch < 24; ++batch) {
    ReadLease lease = ring.next(0, {});
    ASSERT_TRUE(lease);
    stream->copy(copy, lease.batch().pixels);
    EXPECT_EQ(std::to_integer<int>(copy.front()), 2 * batch % 24);
    EXPECT_EQ(std::to_integer<int>(copy.back()), 2 * batch % 24 + 1);
    std::move(lease).release(*stream);
  }
}

TEST_F(PythonLoader, EpochsFollowEachOther) {
  EXPECT_EQ(firsts(take(text("counting", "args='batches=2'"), 5)),
            (std::vector{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(firsts(take(text("generator"), 3)), (std::vector{0, 1, 2, 3, 0, 1}))
      << "a generator function is called again";
  EXPECT_GE(probe_.values().at("loader_epochs"), 4);
}

/// A set of workers that is begun and dropped costs time, and an epoch of its samples.
TEST_F(PythonLoader, EachEpochIteratesOnceAndTellsTheSampler) {
  const std::string path = (folder_.path() / "seen").string();
  take(text("Observed", "args='path=\"" + path + "\"'"), 5);
  const std::string seen = read_text(path);
  EXPECT_TRUE(seen.starts_with("epoch 0\niter\nepoch 1\niter\nepoch 2\niter\n")) << seen;
}

TEST_F(PythonLoader, TheLoaderThatWasAskedForItsShapeIsTheOneOfTheRun) {
  const std::string path = (folder_.path() / "started").string();
  const Options given = options(text("Observed", "args='path=\"" + path + "\"'"));
  const FeederBatches found = entry_.describe_batches(given, DataPlan{}, 1).value();
  FeederContext same = context(given, probe_);
  same.started = found.started;
  EXPECT_EQ(firsts(take(*entry_.make(same), 2)), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(read_text(path).find("epoch 0", 1), std::string::npos);
}

TEST_F(PythonLoader, AnIteratorThatCanBeResetIsNotMadeAgain) {
  EXPECT_EQ(firsts(take(text("Resettable"), 3)), (std::vector{0, 1, 2, 3, 0, 1}));
}

TEST_F(PythonLoader, AnIteratorThatBeginsAnewByItselfIsNotReset) {
  EXPECT_EQ(firsts(take(text("ResetsItself"), 5)), (std::vector{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
}

TEST_F(PythonLoader, ASmallerLastBatchCountsItsImages) {
  const std::vector<Seen> seen = take(text("partial"), 5);
  ASSERT_EQ(seen.size(), 5U);
  EXPECT_EQ(firsts({seen[0], seen[1]}), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(firsts({seen[2]}).front(), 4);
  EXPECT_EQ(seen[2].images, 1);
  EXPECT_FALSE(seen[0].begins_epoch) << "the run begins with it";
  EXPECT_TRUE(seen[3].begins_epoch);
  EXPECT_FALSE(seen[4].begins_epoch);
  EXPECT_GE(probe_.values().at("batches_partial"), 1);
  EXPECT_EQ(probe_.facts().at("loader_steps_per_epoch"), 3);
}

TEST_F(PythonLoader, BatchesMayBeDictionariesAndLabelsLists) {
  const std::vector<Seen> seen = take(text("named"), 3);
  EXPECT_EQ(firsts(seen), (std::vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(seen[2].labels, (std::vector<std::int32_t>{4, 5}));
}

TEST_F(PythonLoader, EntriesWithUsualNamesOrNamedByTheUserAreTaken) {
  const Seen usual = take(text("index_first"), 1).front();
  EXPECT_EQ(firsts({usual}), (std::vector{0, 1}));
  EXPECT_EQ(usual.labels, (std::vector<std::int32_t>{1, 2}));
  constexpr std::int64_t kIndexes = 2 * 8, kLabels = 2 * 4;
  const std::int64_t mask = usual.pixels.size(), copied = probe_.values().at("bytes_copied");
  EXPECT_EQ(copied % (kIndexes + mask + kLabels), 0) << copied << ": other arrays count";
  const Seen named = take(text("index_first", "pixels_key=mask,labels_key=index"), 1).front();
  EXPECT_EQ(firsts({named}), (std::vector{4, 5}));
  EXPECT_EQ(named.labels, (std::vector<std::int32_t>{7, 8}));
  EXPECT_TRUE(mentions(probe_.notes(), "pixels are 'mask' of the batch, labels 'index'"));
  EXPECT_TRUE(mentions(probe_.notes(), "the batch's other arrays (image, label) are copied too"));
  const std::string said =
      thrown_by<ConfigError>([&] { describe(text("index_first", "pixels_key=label")); });
  EXPECT_TRUE(says(said, "--pixels is 'label', which does not fit")) << said;
}

TEST_F(PythonLoader, MissingLabelsAreZeroAndNoted) {
  EXPECT_EQ(take(text("unlabelled"), 1).front().labels, (std::vector<std::int32_t>{0, 0}));
  EXPECT_TRUE(says(probe_.notes().back(), "no integer labels"));
}

TEST_F(PythonLoader, SettingsOfADataLoaderAreNoted) {
  const auto notes = [&](const std::string& workers) {
    const std::size_t before = probe_.notes().size();
    make(text("DataLoader", "args='workers=" + workers + "'"));
    std::string all;
    const std::vector<std::string> said = probe_.notes();
    for (std::size_t i = before; i < said.size(); ++i) all += said[i] + "\n";
    return all;
  };
  EXPECT_TRUE(says(notes("0"), "do not overlap with training"));
  const std::string one = notes("1");
  EXPECT_TRUE(says(one, "num_workers=1, prefetch_factor=2, pin_memory=False"));
  EXPECT_FALSE(says(one, "usable cores"));
  EXPECT_TRUE(says(notes("4096"), "4096 workers share"));
}

TEST_F(PythonLoader, WithoutALoaderTheFeedersYieldTheSameRandomBatchAgainAndAgain) {
  for (const char* const name : {"python", "python-queue", "python-dataset"}) {
    SCOPED_TRACE(name);
    const FeederEntry& entry = find_entry(feeder_table(), name);
    const Options given(name, entry.options, parse_component(name));
    const std::vector<Seen> seen = take(*entry.make(context(given, probe_)), 3);
    ASSERT_EQ(seen.size(), 3U);
    EXPECT_EQ(seen[0].labels, (std::vector<std::int32_t>{0, 1}));
    EXPECT_EQ(seen[0].pixels, seen[2].pixels);
    const std::set<std::byte> values(seen[0].pixels.begin(), seen[0].pixels.end());
    EXPECT_GT(values.size(), 32U) << "of 144 random bytes";
  }
}

TEST_F(PythonLoader, OutputOfTheLoaderDoesNoHarm) {
  EXPECT_EQ(firsts(take(text("prints"), 3)), (std::vector{0, 1, 2, 3, 4, 5}));
}

TEST_F(PythonLoader, ItsBatchesAreDescribed) {
  const FeederBatches batches = describe(text("counting", "args='images=3'"));
  EXPECT_EQ(batches.images, 3);
  EXPECT_EQ(batches.image, (ImageShape{4, 6, 3}));
  const std::vector<std::pair<std::string, std::string>> expected{
      {"batch", "3x4x6x3"}, {"pixels", "u8"}, {"planar", "false"}};
  EXPECT_EQ(batches.options, expected);
  EXPECT_FALSE(entry_.describe_batches(options(text("counting", "batch=2x4x6x3")), {}, 0))
      << "stated batches are not asked for";
}

TEST_F(PythonLoader, ArraysOfNumPyKeepTheirTypeAndOrder) {
  if (!python_has("numpy")) GTEST_SKIP() << "no /usr/bin/python3 with numpy";
  write_text(folder_.path() / "arrays.py", R"(
import numpy
def make(kind, planar):
    shape = (2, 3, 8, 6) if planar else (2, 8, 6, 3)
    values = numpy.arange(2 * 8 * 6 * 3).reshape(shape).astype(kind)
    return [(values, numpy.array([[7], [8]], dtype="uint16"))]
)");
  for (const auto& [kind, name] :
       {std::pair("float32", "f32"), {"float16", "f16"}, {"uint8", "u8"}}) {
    for (const char* const planar : {"True", "False"}) {
      SCOPED_TRACE(std::string(kind) + ", planar " + planar);
      const std::string arguments =
          std::string("args=\"kind='") + kind + "',planar=" + planar + "\"";
      const std::string loader = text("make", "python=/usr/bin/python3," + arguments, "arrays.py");
      const FeederBatches found = describe(loader);
      EXPECT_EQ(found.options[1].second, name);
      EXPECT_EQ(found.options[2].second, *planar == 'T' ? "true" : "false");
      EXPECT_EQ(found.image, (ImageShape{8, 6, 3}));
      const std::vector<Seen> seen = take(stated(loader), 1);
      ASSERT_EQ(seen.size(), 1U);
      EXPECT_EQ(seen[0].labels, (std::vector<std::int32_t>{7, 8}));
      for (const std::size_t i : {0, 1, 100, 287}) {
        const std::byte* const at = seen[0].pixels.data() + i * size_of(spec_.pixel);
        float value = 0;
        if (spec_.pixel == DType::f32) std::memcpy(&value, at, sizeof value);
        if (spec_.pixel == DType::u8) value = static_cast<float>(std::to_integer<int>(*at));
        if (spec_.pixel == DType::f16) {
          values::Fp16 half{};
          std::memcpy(&half, at, sizeof half);
          value = values::load(half);
        }
        EXPECT_EQ(value, static_cast<float>(spec_.pixel == DType::u8 ? i % 256 : i));
      }
    }
  }
}

/// A loader, and words of the report.
struct Fault {
  const char* function;
  const char* words;
};

TEST_F(PythonLoader, FaultsBeforeTheFirstBatchAreNamed) {
  for (const Fault& fault : {Fault{"missing", "has no 'missing'"},
                             {"empty", "yielded no batch"},
                             {"number", "is of type int"},
                             {"exits", "sys.exit('set DATA_ROOT')"},
                             {"several", "returns 2 loaders (train, val); choose one"},
                             {"odd_name", "cannot open a"},
                             {"needs_a_package", "--python chooses another"},
                             {"separate_images", "the batch has 9, 0 has 3"},
                             {"raises_at_once", "ValueError: no such data set"}}) {
    const std::string said = thrown_by<Error>([&] { describe(text(fault.function)); });
    EXPECT_TRUE(says(said, fault.words)) << fault.function << ": " << said;
  }
  const auto fails = [&](const std::string& loader) {
    return thrown_by<Error>([&] { describe(loader); });
  };
  EXPECT_TRUE(says(fails("python:loader=nowhere.py:f"), "no file 'nowhere.py'"));
  EXPECT_TRUE(says(fails("python:loader=f"), "expected FILE.py:FUNCTION"));
  EXPECT_TRUE(says(fails(text("counting", "args='2'")), "NAME=VALUE"));
  EXPECT_TRUE(says(fails(text("counting", "args='image=2'")), "unexpected keyword"));
  EXPECT_TRUE(says(fails(text("counting", "python=/no/python")), "expected a Python interpreter"));
}

TEST_F(PythonLoader, FaultsDuringARunComeAfterTheBatchesBeforeThem) {
  for (const Fault& fault : {Fault{"raises_later", "KeyError: 'sample 17'"},
                             {"grows", "batch 1 of the loader has uint8[2, 8, 8, 3]"},
                             {"dies", "was ended by signal 9"},
                             {"leaves", "ended with status 3"},
                             {"wrong_label", "a label of the loader is 1000"}}) {
    const std::unique_ptr<Feeder> feeder = make(text(fault.function));
    const std::string said = thrown_by<Error>([&] { take(*feeder, 9); });
    EXPECT_TRUE(says(said, fault.words)) << fault.function << ": " << said;
  }
}

TEST_F(PythonLoader, ALoaderThatHangsEndsTheRunWithinItsTimeout) {
  const std::unique_ptr<Feeder> feeder = make(text("hangs"), 300ms);
  const std::string said = thrown_by<TimeoutError>([&] { take(*feeder, 9); });
  EXPECT_TRUE(says(said, "yielded no batch"));
}

TEST_F(PythonLoader, BatchesOfAnotherShapeAreRefused) {
  const std::string said =
      thrown_by<ConfigError>([&] { make(text("counting", "args='images=3'")); });
  EXPECT_TRUE(says(said, "the loader yields 3x4x6x3 u8"));
  EXPECT_TRUE(says(said, "expects 2x4x6x3 u8"));
  EXPECT_THROW(make(text("counting", "batch=2x4x6")), ConfigError);
  EXPECT_THROW(make(text("counting", "batch=2x4x6x3,pixels=f64")), ConfigError);
}

TEST_F(PythonLoader, NothingOfItOutlivesTheFeeder) {
  for (const std::string function : {"writes_its_pid", "forks"}) {
    const std::string path = (folder_.path() / function).string();
    std::unique_ptr<Feeder> feeder = make(text(function, "args='path=\"" + path + "\"'"));
    take(*feeder, 2);
    ASSERT_TRUE(await([&] { return !read_text(path).empty(); }));
    const int pid = std::stoi(read_text(path));
    EXPECT_EQ(kill(pid, 0), 0);
    feeder.reset();
    EXPECT_TRUE(await([&] { return kill(pid, 0) != 0; })) << function;
  }
}

}  // namespace
}  // namespace penstock
