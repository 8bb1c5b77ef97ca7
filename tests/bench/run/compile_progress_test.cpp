// SPDX-License-Identifier: Apache-2.0
#include "bench/run/compile_progress.h"

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
    CompileProgress progress(file, "resnet50");
    updates(progress);
  }
  std::fclose(file);
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  return {text, size};
}

TEST(CompileProgress, IsSilentInItsFirstSecond) {
  EXPECT_EQ(said([](CompileProgress& progress) {
              for (std::size_t done = 0; done <= 100; ++done) progress.update_at(999ms, done, 100);
            }),
            "");
}

TEST(CompileProgress, SaysEachQuarterOnceWhereNobodyWatches) {
  EXPECT_EQ(said([](CompileProgress& progress) {
              for (std::size_t done = 0; done <= 100; ++done) progress.update_at(2s, done, 100);
            }),
            "penstock: compiling resnet50: 25 of 100 operators\n"
            "penstock: compiling resnet50: 50 of 100 operators\n"
            "penstock: compiling resnet50: 75 of 100 operators\n"
            "penstock: compiling resnet50: 100 of 100 operators\n");
}

}  // namespace
}  // namespace penstock
