// SPDX-License-Identifier: Apache-2.0
// Pixels in NumPy files, written by the definition of the format and by NumPy.
#include <gtest/gtest.h>

#include <string>

#include "dataflow/datasets/mapped_file.h"
#include "dataflow/error.h"
#include "dataflow/values/numpy_array.h"
#include "tests/support/npy_file.h"
#include "tests/support/python.h"
#include "tests/support/source_fixture.h"
#include "tests/support/thrown_by.h"
#include "tests/support/whole_run.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbers(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

std::string header(const std::string& type, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

class RawSourceTest : public SourceFixture {
 protected:
  RawSourceTest() : SourceFixture("raw") { plan_.classes = 10; }
  void write(const std::string& name, const std::string& type, const std::string& shape,
             const Bytes& data) const {
    folder_.write(name, npy_file(header(type, shape), data));
  }
  void write_labels(const std::string& name, std::vector<int> labels) const {
    Bytes data;
    for (const int label : labels) data.push_back(static_cast<std::byte>(label));
    write(name, "|i1", "(" + std::to_string(labels.size()) + ",)", data);
  }
};

TEST_F(RawSourceTest, ImagesAreViewsWithTheirLabels) {
  const Bytes pixels = numbers(4 * 30);
  write("images.npy", "|u1", "(4, 2, 5, 3)", pixels);
  write_labels("labels.npy", {3, 1, 0, 9});
  const auto source = open();
  EXPECT_EQ(source->facts().kind, SampleKind::pixels);
  EXPECT_EQ(source->facts().size, 4U);
  EXPECT_EQ(source->facts().classes, 10);
  const int labels[] = {3, 1, 0, 9};
  std::ptrdiff_t i = 0;
  for (Sample sample; source->next(sample); ++i) {
    source->load(sample);
    EXPECT_EQ(sample.label, labels[i]);
    EXPECT_EQ(sample.layout, (PixelLayout{5, 2, 3}));
    EXPECT_TRUE(sample.bytes.empty());
    EXPECT_EQ(Bytes(sample.content().begin(), sample.content().end()),
              Bytes(pixels.begin() + 30 * i, pixels.begin() + 30 * (i + 1)));
  }
  EXPECT_EQ(i, 4);
}

TEST_F(RawSourceTest, LayoutsAreToldFromTheShapeOrByTheUser) {
  write_labels("labels.npy", {0, 1});
  const auto layout = [&](const std::string& shape, std::size_t bytes, std::string_view text) {
    write("images.npy", "|u1", shape, numbers(2 * bytes));
    const auto source = open(text);
    Sample sample;
    EXPECT_TRUE(source->next(sample));
    source->load(sample);
    EXPECT_EQ(sample.content().size(), bytes);
    return sample.layout;
  };
  EXPECT_EQ(layout("(2, 3, 4, 5)", 60, "raw"), (PixelLayout{5, 4, 3, true}));
  EXPECT_EQ(layout("(2, 1, 4, 5)", 20, "raw"), (PixelLayout{5, 4, 1, true}));
  EXPECT_EQ(layout("(2, 4, 5, 1)", 20, "raw"), (PixelLayout{5, 4, 1}));
  EXPECT_EQ(layout("(2, 4, 5)", 20, "raw"), (PixelLayout{5, 4, 1}));
  EXPECT_EQ(layout("(2, 3, 4, 3)", 36, "raw:layout=hwc"), (PixelLayout{4, 3, 3}));
  EXPECT_EQ(layout("(2, 3, 4, 3)", 36, "raw:layout=chw"), (PixelLayout{3, 4, 3, true}));
  EXPECT_EQ(layout("(2, 4, 5, 3)", 60, "raw:channels=bgr"), (PixelLayout{5, 4, 3, false, true}));
  EXPECT_NE(refusal().size(), 0U);
  write("images.npy", "|u1", "(2, 3, 4, 3)", numbers(72));
  EXPECT_TRUE(says(refusal(), "layout=hwc or layout=chw: state which"));
  EXPECT_TRUE(says(refusal("raw:layout=hw"), "does not have the shape of layout=hw"));
  EXPECT_TRUE(says(refusal("raw:channels=rbg"), "rgb or bgr"));
}

TEST_F(RawSourceTest, SeveralPairsAreOneSet) {
  write("a-images.npy", "|u1", "(2, 2, 2)", numbers(8));
  write("b-images.npy", "|u1", "(3, 2, 2)", numbers(12));
  write_labels("a-labels.npy", {1, 2});
  write("b-labels.npy", ">i8", "(3, 1)", [] {
    Bytes data(24);
    for (std::size_t i = 0; i < 3; ++i) data[8 * i + 7] = static_cast<std::byte>(i + 3);
    return data;
  }());
  const auto source = open();
  std::string labels;
  for (Sample sample; source->next(sample);) labels += std::to_string(sample.label);
  EXPECT_EQ(labels, "12345");
  write("b-images.npy", "|u1", "(3, 1, 4)", numbers(12));
  EXPECT_TRUE(says(refusal(), "b-images.npy' has images of another shape"));
}

TEST_F(RawSourceTest, ATruncatedFileIsOneBadSample) {
  write("images.npy", "|u1", "(4, 2, 2, 3)", numbers(2 * 12 + 5));
  write_labels("labels.npy", {1, -1, 3, 4});
  const auto source = open();
  EXPECT_EQ(source->facts().size, 3U);
  const std::vector<GivenSample> all = all_of(*source);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].label, 1);
  EXPECT_TRUE(says(all[1].content, "images.npy' at byte 140: its label is negative"));
  EXPECT_TRUE(says(all[2].content, "5 bytes into an image of 12"));
}

TEST_F(RawSourceTest, UnusableFilesAreReportedBeforeTheRun) {
  EXPECT_TRUE(says(refusal(), "without such files"));
  write("images.npy", "|u1", "(2, 2, 2, 3)", numbers(24));
  EXPECT_TRUE(says(refusal(), "labels.npy"));
  write_labels("labels.npy", {1, 2, 3});
  EXPECT_TRUE(says(refusal(), "one label for each of 2 images"));
  write("labels.npy", "<f4", "(2,)", numbers(8));
  EXPECT_TRUE(says(refusal(), "labels.npy' does not hold whole"));
  write("labels.npy", "<i8", "(2,)", numbers(9));
  EXPECT_TRUE(says(refusal(), "labels.npy' was cut"));
  write_labels("labels.npy", {1, 2});
  for (const auto& [type, shape] : {std::pair{"<f4", "(2, 2, 2, 3)"},
                                    {"|u1", "(2, 2, 2, 4)"},
                                    {"|u1", "(24,)"},
                                    {"|u1", "()"},
                                    {"|u1", "(2, 0, 2, 3)"},
                                    {"|u1", "(2, 99999, 99999, 3)"},
                                    {"|O", "(2, 2, 2, 3)"}}) {
    write("images.npy", type, shape, numbers(24));
    EXPECT_TRUE(says(refusal(), "images.npy'")) << type << shape << refusal();
  }
  folder_.write("images.npy", npy_file(header("|u1", "(2, 2, 2, 3)", true), numbers(24)));
  EXPECT_TRUE(says(refusal(), "Fortran"));
}

TEST(Npy, InvalidHeadersAreRefused) {
  const Bytes data = numbers(24);
  const auto refusal = [&](const Bytes& file) {
    return thrown_by<DataError>([&] { values::parse_npy(file); });
  };
  for (const char* text :
       {"", "{", "{}", "{'descr': '|u1'}", "{'descr': '|u1', 'fortran_order': False}",
        "{'descr': '|u1', 'fortran_order': Maybe, 'shape': (2,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} import os"}) {
    EXPECT_TRUE(says(refusal(npy_file(text, data)), "a .npy file that cannot be read")) << text;
  }
  const Bytes good = npy_file(header("|u1", "(24,)"), data);
  EXPECT_EQ(values::parse_npy(good).data.size(), 24U);
  for (std::size_t cut = 0; cut < 128; ++cut) {
    EXPECT_NE(refusal(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(cut))).size(),
              0U);
  }
  EXPECT_TRUE(says(refusal(npy_file(header("|u1", "(24,)"), data, 4)), "version 4"));
}

TEST_F(RawSourceTest, FilesThatNumpySavedFeedARun) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  run_python(R"(
import sys, numpy as np
images = np.random.default_rng(1).integers(0, 256, (6, 40, 36, 3), 'u1')
np.save(sys.argv[1] + '/images.npy', images)
np.save(sys.argv[1] + '/labels.npy', np.arange(6) % 4)
images.tofile(sys.argv[1] + '/plain')
np.lib.format.write_array(open(sys.argv[1] + '/three', 'wb'), images, (3, 0))
)",
             {plan_.directory});
  const datasets::MappedFile plain_file((folder_ / "plain").string()),
      three((folder_ / "three").string());
  const std::span<const std::byte> plain = plain_file.bytes(),
                                   data = values::parse_npy(three.bytes()).data;
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), data.begin(), data.end()));
  const auto source = open();
  std::size_t i = 0;
  for (Sample sample; source->next(sample); ++i) {
    source->load(sample);
    EXPECT_EQ(sample.label, static_cast<std::int32_t>(i % 4));
    const std::span<const std::byte> expected = plain.subspan(i * 4320, 4320);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), sample.content().begin()));
  }
  EXPECT_EQ(i, 6U);
  run_of("queue:source=raw", plan_.directory);
}

}  // namespace
}  // namespace penstock
