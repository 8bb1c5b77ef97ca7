// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/dynamic_library.h"

#include <gtest/gtest.h>

#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST(DynamicLibrary, FindsFunctionsAndNamesWhatIsMissingWithTheRemedy) {
  const DynamicLibrary maths("libm.so.6", "install libc6");
  double (*const cosine)(double) = maths["cos"];
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(thrown_by<Unavailable>([&] {
              double (*const none)(double) = maths["no_such_function"];
              none(0);
            }),
            "libm.so.6 has no no_such_function; install libc6");
  const std::string reason =
      thrown_by<Unavailable>([] { DynamicLibrary("libpenstock_none.so.7", "install it"); });
  EXPECT_TRUE(says(reason, "libpenstock_none.so.7 cannot be loaded: "));
  EXPECT_TRUE(says(reason, "; install it"));
}

}  // namespace
}  // namespace penstock
