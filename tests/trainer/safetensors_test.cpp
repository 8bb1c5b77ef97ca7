// SPDX-License-Identifier: Apache-2.0
#include "trainer/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string error_of(const std::vector<std::byte>& file) {
  return thrown_by<DataError>([&] { parse_safetensors(file); });
}

TEST(SafeTensors, ReadsTheExampleOfTheFormatsOwnPage) {
  const std::vector<std::byte> file = file_of(
      R"({"__metadata__":{"a":"b"},"test":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})", 8);
  const SafeTensors tensors = parse_safetensors(file);
  EXPECT_EQ(tensors.metadata.at("a"), "b");
  ASSERT_EQ(tensors.tensors.size(), 1U);
  EXPECT_EQ(tensors.tensors[0].name, "test");
  EXPECT_EQ(tensors.tensors[0].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(tensors.tensors[0].data.data(), file.data() + file.size() - 8);
}

TEST(SafeTensors, WhatIsWrittenIsReadBack) {
  const std::vector<float> first = {1, 2, 3, 4, 5, 6}, second = {7};
  const std::vector<SafeTensor> written = {{"w", {2, 3}, std::as_bytes(std::span(first))},
                                           {"a", {}, std::as_bytes(std::span(second))}};
  const std::string header = safetensors_header({{"format", "x"}}, written);
  EXPECT_EQ(header.size() % 8, 0U);
  std::vector<std::byte> file(header.size() + 28);
  std::memcpy(file.data(), header.data(), header.size());
  std::memcpy(file.data() + header.size(), first.data(), 24);
  std::memcpy(file.data() + header.size() + 24, second.data(), 4);
  const SafeTensors read = parse_safetensors(file);
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(read.tensors[0].name, "w") << "in the order of their data";
  EXPECT_EQ(read.tensors[1].shape, std::vector<std::int64_t>{});
  EXPECT_EQ(std::memcmp(read.tensors[0].data.data(), first.data(), 24), 0);
  EXPECT_EQ(read.metadata.at("format"), "x");
}

TEST(SafeTensors, RefusesWhatContradictsItself) {
  struct Case {
    const char *header, *reason;
  };
  for (const Case& c : {
           Case{"{", "no JSON object"},
           {"[]", "no JSON object"},
           {R"({"t":1})", "not described by an object"},
           {R"({"t":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})", "not of dtype F32"},
           {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "not as long as"},
           {R"({"t":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "a dimension"},
           {R"({"t":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "a dimension"},
           {R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "outside the file"},
           {R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "outside the file"},
           {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "does not follow"},
           {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "bytes behind"},
           {R"({"t":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
            "larger than the file"},
           {R"({"t":{"dtype":"F32","shape":[8,8,8,8],"data_offsets":[0,8]}})",
            "larger than the file"},
           {R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", "no shape"},
           {R"({"t":{"dtype":"F32","shape":[2]}})", "no data_offsets"},
           {R"({"__metadata__":{"a":1}})", "no text"},
       }) {
    EXPECT_TRUE(says(error_of(file_of(c.header, 8)), c.reason)) << c.header;
  }
}

TEST(SafeTensors, RefusesHeadersThatDoNotFit) {
  EXPECT_TRUE(says(error_of({}), "it has 0 bytes"));
  std::vector<std::byte> file = file_of("{}", 0);
  file[0] = std::byte{3};
  EXPECT_TRUE(says(error_of(file), "would have 3 of 10 bytes"));
  file[7] = std::byte{0xff};
  EXPECT_TRUE(says(error_of(file), "header would have"));
}

}  // namespace
}  // namespace penstock
