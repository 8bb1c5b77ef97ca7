// SPDX-License-Identifier: Apache-2.0
#include "dataflow/options.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr OptionSpec kSpecs[] = {{"endpoint", "ipc://testpipe", "where"},
                                 {"hwm", "8", "messages"},
                                 {"bind", "true", "who binds"}};

Options options(std::string_view text) {
  const ComponentText parts = parse_component(text);
  return Options(parts.name, kSpecs, parts);
}

TEST(Component, SplitsNameAndValues) {
  const ComponentText parts = parse_component("zmq-consume:endpoint=ipc://a=b,hwm=2,bind");
  EXPECT_EQ(parts.name, "zmq-consume");
  const std::vector<std::pair<std::string, std::string>> expected{
      {"endpoint", "ipc://a=b"}, {"hwm", "2"}, {"bind", ""}};
  EXPECT_EQ(parts.values, expected);
}

TEST(Component, QuotesKeepCommasAndSpaces) {
  const ComponentText parts = parse_component("zmq-consume:producer='python3 p.py -x a,b=c',hwm=2");
  ASSERT_EQ(parts.values.size(), 2U);
  EXPECT_EQ(parts.values[0].second, "python3 p.py -x a,b=c");
}

TEST(Component, RefusesEmptyNamesAndOpenQuotes) {
  EXPECT_THROW(parse_component(""), ConfigError);
  EXPECT_THROW(parse_component("=x"), ConfigError);
  EXPECT_THROW(parse_component("a:b='c"), ConfigError);
  EXPECT_THROW(parse_component("a:,"), ConfigError);
}

TEST(Component, RefusesAnEmptyValueInsteadOfTakingItForTrue) {
  for (const char* const text : {"zmq-consume:endpoint=", "x:a=,b=1", "x:a=''"}) {
    EXPECT_THROW(parse_component(text), ConfigError) << text;
  }
}

TEST(ComponentList, PiecesWithAnEqualsSignFirstContinueTheComponentBefore) {
  const std::vector<std::string> expected{"gpu", "zmq-consume:hwm=8,bind=true", "cpu"};
  EXPECT_EQ(split_component_list("gpu,zmq-consume:hwm=8,bind=true,cpu"), expected);
  const std::vector<std::string> endpoint{"zmq-consume:hwm=2,endpoint=ipc://x", "gpu"};
  EXPECT_EQ(split_component_list("zmq-consume:hwm=2,endpoint=ipc://x,gpu"), endpoint);
  EXPECT_THROW(split_component_list("gpu,,cpu"), ConfigError);
}

TEST(Options, DefaultsComeFromTheTable) {
  EXPECT_EQ(options("x").text("endpoint"), "ipc://testpipe");
  EXPECT_EQ(options("x").integer("hwm"), 8);
  EXPECT_FALSE(options("x:hwm=8").given("bind"));
  EXPECT_TRUE(options("x:hwm=8").given("hwm"));
}

TEST(Options, BareWordsAreFlagsOrTheFirstOption) {
  EXPECT_TRUE(options("x:bind").flag("bind"));
  EXPECT_EQ(options("x:tcp").text("endpoint"), "tcp");
}

TEST(Options, UnknownKeysNameTheNearest) {
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { options("zmq-consume:hvm=3"); }), "did you mean 'hwm'"));
  EXPECT_THROW(options("x:hwm=1,hwm=2"), ConfigError);
}

TEST(Options, ValuesOfTheWrongKindAreRefused) {
  EXPECT_THROW(options("x:hwm=two").integer("hwm"), ConfigError);
  EXPECT_THROW(options("x:bind=maybe").flag("bind"), ConfigError);
}

TEST(Options, PartsBecomeTextThatIsReadAsTheSameParts) {
  EXPECT_EQ(component_text({"gpu", {}}), "gpu");
  EXPECT_EQ(component_text({"x", {{"hwm", "2"}, {"bind", ""}}}), "x:hwm=2,bind");
  for (const std::string value : {"a,b", "it's", "\"", "'\",'", "a=b:c"}) {
    const ComponentText parts{"x", {{"producer", value}, {"hwm", "2"}}};
    const ComponentText read = parse_component(component_text(parts));
    EXPECT_EQ(read.name, "x");
    EXPECT_EQ(read.values, parts.values) << component_text(parts);
  }
}

TEST(Parse, BytesAndDurationsCarryUnits) {
  EXPECT_EQ(parse_bytes("512MiB", "x"), 512U << 20);
  EXPECT_EQ(parse_bytes("2GB", "x"), 2000000000U);
  EXPECT_EQ(parse_duration("250ms", "x"), 250ms);
  EXPECT_EQ(parse_duration("1.5", "x"), 1500ms);
  EXPECT_THROW(parse_bytes("-1", "x"), ConfigError);
  EXPECT_THROW(parse_bytes("1e300", "x"), ConfigError);
  EXPECT_THROW(parse_bytes("nan", "x"), ConfigError);
  EXPECT_THROW(parse_duration("5 parsecs", "x"), ConfigError);
}

TEST(Parse, ANumberIsTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<std::int32_t>("-12"), -12);
  EXPECT_EQ(parse_number<float>("1.5"), 1.5F);
  for (const char* text : {"", "x", "1 ", "1x", "99999999999"}) {
    EXPECT_EQ(parse_number<std::int32_t>(text), std::nullopt) << text;
  }
}

TEST(Quantities, AreWrittenInTheUnitThatFits) {
  EXPECT_EQ(size_text(9'999), "9999 bytes");
  EXPECT_EQ(size_text(173'000), "173 kB");
  EXPECT_EQ(size_text(173e6), "173 MB");
  EXPECT_EQ(size_text(34.4e9), "34.4 GB");
  EXPECT_EQ(seconds_text(200ms), "0.2 s");
  EXPECT_EQ(seconds_text(30s), "30 s");
}

TEST(Options, AChoiceIsThePlaceOfItsWord) {
  constexpr OptionSpec kOrder[] = {{"order", "as_is", ""}};
  const auto choice = [&](const char* text) {
    return Options("x", kOrder, parse_component(text))
        .choice("order", {{"sorted"}, {"shuffled"}, {"as_is"}});
  };
  EXPECT_EQ(choice("x"), 2U);
  EXPECT_EQ(choice("x:order=shuffled"), 1U);
  EXPECT_EQ(choice("x:order=As-Is"), 2U);
  EXPECT_EQ(thrown_by<ConfigError>([&] { choice("x:order=best"); }),
            "x: option 'order' is 'best'; expected sorted, shuffled or as_is");
}

}  // namespace
}  // namespace penstock
