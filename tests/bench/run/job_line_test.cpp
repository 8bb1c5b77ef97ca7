// SPDX-License-Identifier: Apache-2.0
#include "bench/run/job_line.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The output to a file, which is not a terminal.
template <typename Updates>
std::string said(Updates updates) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  {
    JobLine line(file);
    updates(line);
  }
  std::fclose(file);
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  return {text, size};
}

TEST(JobLine, IsSilentInItsFirstSecond) {
  EXPECT_EQ(said([](JobLine& line) {
              for (std::uint64_t i = 0; i <= 100; ++i)
                line.update_at(999ms, "reading", i, 100, "x");
            }),
            "");
}

TEST(JobLine, PrintsALineEveryFiveSecondsToAFile) {
  EXPECT_EQ(said([](JobLine& line) {
              for (std::uint64_t i = 0; i <= 100; ++i) {
                line.update_at(i * 100ms, "compiling resnet50", i, 100, "operators");
              }
            }),
            "penstock: compiling resnet50: 10 of 100 operators\n"
            "penstock: compiling resnet50: 60 of 100 operators\n");
}

}  // namespace
}  // namespace penstock
