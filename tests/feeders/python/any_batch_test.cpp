// SPDX-License-Identifier: Apache-2.0
// Loaders whose batches are no images: how many samples they have, and which bytes arrive.
#include <algorithm>

#include "dataflow/error.h"
#include "tests/feeders/python/python_loader_fixture.h"
#include "tests/support/python.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr const char* kAnyLoaders = R"(
import array, collections, dataclasses

def of(kind, values, *shape):
    return memoryview(array.array(kind, values)).cast("B").cast(kind, shape or (len(values),))

Pair = collections.namedtuple("Pair", "first second")

@dataclasses.dataclass
class Record:
    ids: object
    name: str

def nested():
    ids = of("q", range(6), 3, 2)
    return [{"ids": ids, "more": [Pair(of("B", [7, 8, 9]), Record(of("i", [1, 2, 3]), "text"))], "weights": [.5, 1., 2.]}]

def longer(growth=1):
    for length in (4, 2, 4 * growth):
        yield {"ids": of("B", [length % 256] * (3 * length), 3, length)}

def boxes():
    for count in (4, 5):
        yield [of("B", [1] * 3 * i, 3, i) for i in range(1, count)], [{"box": of("i", [2])} for _ in range(1, count)]

def graph():
    return [{"x": of("f", [1.] * 8, 4, 2), "edges": of("q", [0] * 6, 2, 3), "y": of("q", [0, 1])}]

def packed():
    return [{"tokens": of("q", [1] * 9), "starts": of("q", [0, 4, 6, 9])}]

def changing():
    return [{"a": of("B", [1, 2])}, {"b": of("B", [1, 2])}]

def vanishing():
    return [{"a": of("B", [1, 2])}, {"a": array.array("B")}]

def dotted():
    return [{"data.ids": of("q", range(6), 3, 2), "1": (of("B", [1, 2, 3]), 7)}]

def ragged():
    return [{"ids": [[1, 2], [3, 4, 5]], "y": of("q", [0, 1])}]

def last_start(batch):
    return batch["starts"][-1]

def nothing(batch):
    return 0

def words():
    return [["one", "two"]]
)";

/// Arrays of NumPy whose bytes are not in order, or none.
constexpr const char* kOddArrays = R"(
import numpy

def odd():
    return [{"columns": numpy.arange(6, dtype="int32").reshape(2, 3).T, "names": numpy.array(["a", None, 3], object),
             "days": numpy.array([1, 2, 3], "datetime64[D]"), "every_other": memoryview(bytes([1, 2, 3, 4, 5, 6]))[::2]}]
)";

/// Three of eight positions are padding in each.
constexpr const char* kPadded = R"(
import numpy

def ids():
    ids = numpy.arange(1, 33).reshape(4, 8)
    ids[:2, 4:] = ids[2:, 6:] = 0
    return ids

def masked():
    return [{"ids": numpy.zeros((4, 8), "int64"), "attention_mask": ids() != 0}]

def numbered():
    return [{"labels": [0, 1, 0, 1], "ids": ids()}]

def frames():
    return [{"frames": numpy.repeat((ids() != 0)[:, :, None], 3, axis=2).astype("float32")}]

def dense():
    return [{"ids": numpy.arange(32).reshape(4, 8), "mask": numpy.ones((4, 8), "int64"), "same": numpy.ones((4, 8))}]
)";

class AnyBatch : public PythonLoader {
 protected:
  AnyBatch() { write_text(folder_.path() / "any.py", kAnyLoaders); }

  std::string any(const std::string& function, const std::string& more = "") const {
    return text(function, more, "any.py");
  }
  /// The samples that the first batch is said to have, or the error.
  std::string samples(const std::string& function, const std::string& more = "") {
    std::string found;
    const std::string error =
        thrown_by<Error>([&] { found = std::to_string(describe(any(function, more)).images); });
    return found.empty() ? error : found;
  }
  std::vector<Seen> take_all(const std::string& function, std::size_t count,
                             const std::string& more = "") {
    return take(stated(any(function, more)), count);
  }
};

TEST_F(AnyBatch, TheArraysOfANestArriveOneAfterAnother) {
  const std::vector<Seen> seen = take_all("nested", 1);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].images, 3);
  EXPECT_TRUE(spec_.opaque);
  EXPECT_EQ(seen[0].pixels.size(), 4U * 64) << "four arrays, each at a multiple of 64 bytes";
  const auto value_at = [&](std::size_t at, auto value) {
    std::memcpy(&value, seen[0].pixels.data() + at, sizeof value);
    return value;
  };
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(value_at(8 * i, std::int64_t{}), static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(value_at(64, std::uint8_t{}), 7);
  EXPECT_EQ(value_at(128 + 8, std::int32_t{}), 3);
  EXPECT_EQ(value_at(192 + 8, double{}), 1.0);
}

TEST_F(AnyBatch, ArraysWithoutOrderAreCopiedAndObjectsAreNot) {
  if (!python_has("numpy")) GTEST_SKIP() << "no /usr/bin/python3 with numpy";
  write_text(folder_.path() / "any.py", kOddArrays);
  const std::vector<Seen> seen = take_all("odd", 1, "python=/usr/bin/python3");
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].images, 3);
  ASSERT_EQ(seen[0].pixels.size(), 3U * 64) << "the array of objects has no bytes";
  std::array<std::int32_t, 6> columns{};
  std::memcpy(columns.data(), seen[0].pixels.data(), sizeof columns);
  EXPECT_EQ(columns, (std::array{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(seen[0].pixels[64], std::byte{1});
  EXPECT_EQ(seen[0].pixels[128 + 2], std::byte{5});
}

TEST_F(AnyBatch, TheNumberOfArraysIsAFact) {
  const std::unique_ptr<Probe> probe = probe_of(stated(any("nested")), 3);
  EXPECT_EQ(probe->facts().at("loader_arrays_per_batch"), 4);
}

TEST_F(AnyBatch, PaddingIsFoundByAMaskOrByWhatRowsEndWith) {
  if (!python_has("numpy")) GTEST_SKIP() << "no /usr/bin/python3 with numpy";
  write_text(folder_.path() / "any.py", kPadded);
  const auto padding = [&](const std::string& function) {
    const std::string text = stated(any(function, "python=/usr/bin/python3"));
    std::map<std::string, double> found;
    for (const auto& [fact, value] : probe_of(text, 3)->facts()) {
      if (fact.starts_with("loader_padding_percent")) found[fact.substr(24)] = value;
    }
    return found;
  };
  using Found = std::map<std::string, double>;
  EXPECT_EQ(padding("masked"), (Found{{"attention_mask", 37.5}}));
  EXPECT_EQ(padding("numbered"), (Found{{"ids", 37.5}}));
  EXPECT_EQ(padding("frames"), (Found{{"frames", 37.5}}));
  EXPECT_EQ(padding("dense"), (Found{{"mask", 0}}));
}

TEST_F(AnyBatch, SamplesAreCountedByWhatTheArraysShare) {
  EXPECT_EQ(samples("nested"), "3");
  EXPECT_EQ(samples("boxes"), "3") << "lists of arrays of several sizes, and of dictionaries";
  EXPECT_EQ(samples("graph"), "2") << "labels decide";
  EXPECT_EQ(samples("graph", "samples=x"), "4");
  EXPECT_EQ(samples("dotted"), "3");
  EXPECT_EQ(samples("dotted", "samples=1.0"), "3");
  EXPECT_EQ(samples("packed", "samples=3"), "3");
  EXPECT_EQ(samples("packed", "samples=starts"), "4");
}

TEST_F(AnyBatch, OtherThingsThanSamplesAreCountedOnRequest) {
  EXPECT_EQ(samples("nested", "count=ids"), "6") << "all numbers of an array";
  EXPECT_EQ(samples("boxes", "count=0"), "18") << "of a list of arrays";
  EXPECT_EQ(samples("ragged", "count=ids"), "5") << "of lists of numbers, each number once";
  EXPECT_EQ(samples("dotted", "count='bytes=1.1'"), "7") << "a number is itself";
  EXPECT_EQ(samples("packed", "count='tokens=last_start'"), "9") << "a function of the file";
  EXPECT_TRUE(says(samples("nested", "count=lengths"),
                   "batch 0 of the loader has no 'lengths' whose numbers can be counted"));
  EXPECT_TRUE(says(samples("packed", "count=nothing"), "'nothing' counts 0 in batch 0"));
  EXPECT_TRUE(says(samples("nested", "count='=ids'"), "expected KEY or UNIT=KEY"));
  EXPECT_TRUE(says(samples("nested", "count='img/s=ids'"), "expected KEY or UNIT=KEY"));
  EXPECT_TRUE(says(samples("nested", "count='img=ids'"), "expected KEY or UNIT=KEY"));
  EXPECT_TRUE(says(samples("nested", "count=ids,samples=3"), "cannot be combined with 'samples'"));
}

TEST_F(AnyBatch, WhatCannotBeCountedIsNamed) {
  const std::string unclear = samples("packed");
  EXPECT_TRUE(says(unclear, "tokens has 9, starts has 4")) << unclear;
  EXPECT_TRUE(says(unclear, "--batch-samples")) << unclear;
  EXPECT_TRUE(says(unclear, "dict of tokens int64[9], starts int64[4]")) << unclear;
  EXPECT_TRUE(says(samples("packed", "samples=lengths"), "batch 0 of the loader has no 'lengths'"));
  EXPECT_TRUE(says(samples("words"), "holds no arrays: list of str"));
  for (const auto& [function, words] :
       {std::pair("changing", "batch 1 of the loader has no 'a'"), {"vanishing", "0 samples"}}) {
    const std::string said = thrown_by<Error>([&] { take_all(function, 2); });
    EXPECT_TRUE(says(said, words)) << said;
  }
}

TEST_F(AnyBatch, BatchesMayDifferInLengthAndInSamples) {
  const std::vector<Seen> lengths = take_all("longer", 3);
  ASSERT_EQ(lengths.size(), 3U);
  EXPECT_EQ(lengths[1].pixels.front(), std::byte{2});
  EXPECT_EQ(lengths[1].pixels.size(), 64U);
  const std::vector<Seen> counts = take_all("boxes", 2);
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].images, 3);
  EXPECT_EQ(counts[1].images, 4);
  EXPECT_EQ(counts[1].pixels.size(), 8U * 64);
}

TEST_F(AnyBatch, BytesBeyondASlotAreCounted) {
  const std::vector<Seen> seen = take_all("longer", 3, "args=growth=100");
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[2].pixels.size(), spec_.pixel_bytes());
  EXPECT_EQ(probe_.counter("bytes_beyond_slot").value(),
            1216 - static_cast<std::int64_t>(spec_.pixel_bytes()));
}

}  // namespace
}  // namespace penstock
