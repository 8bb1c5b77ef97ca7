// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 files, written byte by byte and by Python: reading, and feeding a run of the built
// program.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"
#include "dataflow/random.h"
#include "dataflow/values/value_at.h"
#include "tests/support/python.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kPixels = 3072;

class Cifar10Test : public SourceFixture {
 protected:
  Cifar10Test() : SourceFixture("cifar10") { plan_.classes = 10; }

  /// Pixels of record `number`, different for each record.
  static Bytes pixels_of(std::uint64_t number) {
    Bytes pixels(kPixels);
    Random(7, 0, number).fill(pixels);
    return pixels;
  }
  static Bytes records(std::uint64_t first, std::uint64_t count) {
    Bytes bytes;
    for (std::uint64_t i = first; i < first + count; ++i) {
      bytes.push_back(std::byte(i % 10));
      const Bytes pixels = pixels_of(i);
      bytes.insert(bytes.end(), pixels.begin(), pixels.end());
    }
    return bytes;
  }
  /// Files of three records: 0 to 14 for training, 15 to 17 for testing.
  void write_binary(const std::string& folder = "") {
    for (std::uint64_t i = 0; i < 5; ++i) {
      folder_.write(folder + "data_batch_" + std::to_string(i + 1) + ".bin", records(3 * i, 3));
    }
    folder_.write(folder + "test_batch.bin", records(15, 3));
  }

  void expect_records(Source& source, std::uint64_t first, std::uint64_t count) const {
    EXPECT_EQ(source.facts().size, count);
    EXPECT_EQ(source.facts().kind, SampleKind::pixels);
    std::uint64_t number = first;
    for (Sample sample; source.next(sample); ++number) {
      source.load(sample);
      EXPECT_EQ(sample.label, static_cast<std::int32_t>(number % 10));
      EXPECT_EQ(sample.layout, (PixelLayout{32, 32, 3, true}));
      EXPECT_TRUE(sample.bytes.empty());
      EXPECT_EQ(Bytes(sample.content().begin(), sample.content().end()), pixels_of(number));
    }
    EXPECT_EQ(number, first + count);
  }
};

TEST_F(Cifar10Test, TheBinaryVersionHasItsPixelsAndLabels) {
  for (const char* inside : {"", "cifar-10-batches-bin/"}) {
    write_binary(inside);
    expect_records(*open(), 0, 15);
    expect_records(*open("cifar10:test"), 15, 3);
  }
}

/// A file of the Python version, with the opcodes that Python 2 wrote.
Bytes pickled(const Bytes& pixels, const std::vector<int>& labels) {
  const auto length = [](std::size_t size) {
    std::string text;
    for (int i = 0; i < 4; ++i) text += static_cast<char>(size >> 8 * i & 0xff);
    return text;
  };
  std::string text(
      "\x80\x02}q\x01(U\x0b"
      "batch_labelq\x02U\x03"
      "oneq\x03U\x06labelsq\x04]q\x05(");
  for (const int label : labels) text += std::string("K") + static_cast<char>(label);
  text += std::string(
      "eU\x04"
      "dataq\x06"
      "cnumpy.core.multiarray\n_reconstruct\nq\x07"
      "cnumpy\nndarray\nq\x08");
  text += std::string(
              "K\x00\x85U\x01"
              "b\x87Rq\x09(K\x01J",
              14) +
          length(labels.size());
  text += std::string(
      "M\x00\x0c\x86"
      "cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNN",
      40);
  text +=
      "J\xff\xff\xff\xffJ\xff\xff\xff\xffK" + std::string("\x00tb\x89T", 5) + length(pixels.size());
  text.append(values::text_of(pixels)).append("tbu.");
  return bytes_of_text(text);
}

TEST_F(Cifar10Test, ThePythonVersionHasItsPixelsAndLabels) {
  for (std::uint64_t file = 0; file < 6; ++file) {
    Bytes pixels;
    std::vector<int> labels;
    for (std::uint64_t i = 3 * file; i < 3 * file + 3; ++i) {
      const Bytes one = pixels_of(i);
      pixels.insert(pixels.end(), one.begin(), one.end());
      labels.push_back(static_cast<int>(i % 10));
    }
    const std::string name = file < 5 ? "data_batch_" + std::to_string(file + 1) : "test_batch";
    folder_.write("cifar-10-batches-py/" + name, pickled(pixels, labels));
  }
  expect_records(*open(), 0, 15);
  expect_records(*open("cifar10:test"), 15, 3);
}

TEST_F(Cifar10Test, BatchesThatPythonPickledAreRead) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  write_binary("binary/");
  for (int protocol = 2; protocol <= 5; ++protocol) {
    run_python(R"(
import pickle, sys, numpy as np
folder, protocol = sys.argv[1], int(sys.argv[2])
for name in ['data_batch_%d' % i for i in range(1, 6)] + ['test_batch']:
    raw = np.fromfile('%s/binary/%s.bin' % (folder, name), 'u1').reshape(-1, 3073)
    batch = {b'batch_label': b'x', b'labels': raw[:, 0].tolist(), b'data': raw[:, 1:].copy(),
             b'filenames': [b'a.png'] * len(raw)}
    with open('%s/%s' % (folder, name), 'wb') as file:
        pickle.dump(batch, file, protocol)
)",
               {plan_.directory, std::to_string(protocol)});
    if (protocol == 2) {
      EXPECT_TRUE(says(thrown_by<ConfigError>([&] { open(); }), "holds its array as text"));
    } else {
      expect_records(*open(), 0, 15);
    }
  }
}

TEST_F(Cifar10Test, PicklesOfSomethingElseAreRefusedWithTheirFile) {
  const auto refusal = [&](const Bytes& bytes) {
    folder_.write("test_batch", bytes);
    return thrown_by<ConfigError>([&] { open("cifar10:test"); });
  };
  const Bytes good = pickled(pixels_of(1), {1});
  EXPECT_TRUE(says(refusal(pickled(pixels_of(1), {1, 2})), "of a shape that its 3072 bytes"));
  EXPECT_TRUE(says(refusal(Bytes(good.begin(), good.end() - 9)), "test_batch' is a pickle that"));
  EXPECT_TRUE(
      says(refusal({std::byte{0x80}, std::byte{2}, std::byte{'}'}, std::byte{'.'}}), "lacks"));
  folder_.write("test_batch", pickled(pixels_of(1), {10}));
  const auto source = open("cifar10:test");
  Sample sample;
  ASSERT_TRUE(source->next(sample));
  EXPECT_TRUE(says(thrown_by<DataError>([&] { source->load(sample); }), "none of 10 classes"));
}

TEST_F(Cifar10Test, EvaluationTakesTheTestFileUnlessTold) {
  write_binary();
  plan_.augment = false;
  expect_records(*open(), 15, 3);
  expect_records(*open("cifar10:split=train"), 0, 15);
}

TEST_F(Cifar10Test, ADamagedRecordIsNamedAndCostsItselfAlone) {
  write_binary();
  Bytes bytes = records(0, 3);
  bytes[1 + kPixels] = std::byte{10};
  bytes.pop_back();
  folder_.write("data_batch_1.bin", bytes);
  const std::vector<GivenSample> all = all_of(*open());
  ASSERT_EQ(std::ranges::count(all, -1, &GivenSample::label), 2);
  EXPECT_TRUE(says(all[1].content, "data_batch_1.bin' at byte 3073: its label is 10"));
  EXPECT_TRUE(says(all[2].content, "ends after 3072 of 3073 bytes"));
}

TEST_F(Cifar10Test, UnusableFilesAreReportedBeforeTheRun) {
  EXPECT_TRUE(says(refusal(), "there is no CIFAR-10"));
  write_binary();
  EXPECT_TRUE(says(refusal("cifar10:split=val"), "'split' is 'val'"));
  std::filesystem::remove(folder_ / "data_batch_4.bin");
  EXPECT_TRUE(says(refusal(), "data_batch_4.bin' of CIFAR-10 is missing"));
  folder_.write("data_batch_4.bin", Bytes(100));
  EXPECT_TRUE(says(refusal(), "has 100 bytes"));
  write_binary();
  plan_.classes = 5;
  EXPECT_TRUE(says(refusal(), "--classes"));
}

TEST_F(Cifar10Test, FeedsATrainingRunAndItsEvaluation) {
  write_binary();
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {PENSTOCK_PROGRAM, "run", "--device", "emulated:img_per_s=100000", "--model",
                      "resnet20", "--data-dir", plan_.directory, "--batch-size", "3",
                      "--num-batches", "4", "--num-warmup-batches", "1"});
    ChildProcess child({.arguments = arguments, .timeout = std::chrono::seconds(50)});
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.code, 0) << exit.describe();
    return exit.output;
  };
  for (const char* feeder : {"queue:source=cifar10", "queue"}) {
    const std::string table = run({"--fake-location", feeder});
    EXPECT_TRUE(says(table, "Dataset:     cifar10\n")) << feeder;
    EXPECT_TRUE(says(table, "total images/sec")) << feeder;
  }
  EXPECT_TRUE(says(run({"--fake-location", "queue:crop=pad4,source=cifar10"}), "total images/sec"));
}

}  // namespace
}  // namespace penstock
