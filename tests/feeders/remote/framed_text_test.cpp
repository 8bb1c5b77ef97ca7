// SPDX-License-Identifier: Apache-2.0
// Hellos, welcomes and refusals in Penstock's format.
#include "feeders/remote/wire/framed_text.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/framed_messages.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Parses the text as that of a message of the given kind.
template <typename Parse>
auto parsed(Parse parse, remote::FramedKind kind, std::string_view text) {
  const FrameList frames = framed_message(header_of(kind), {bytes_of_text(text)});
  return parse(remote::parse_framed(views_of(frames)));
}

remote::FramedHello hello_of(std::string_view text) {
  return parsed(remote::parse_framed_hello, remote::FramedKind::hello, text);
}

std::string refusal_of_hello(std::string_view text) {
  return thrown_by<DataError>([&] { hello_of(text); });
}

TEST(FramedText, AHelloComesBackAsItWasWritten) {
  const remote::FramedHello hello{"loader", "host7", 4711, "0f0f-11", "@penstock-4711"};
  EXPECT_EQ(hello_of(remote::write_framed_hello(hello)), hello);
  EXPECT_EQ(hello_of(remote::write_framed_hello({})), remote::FramedHello{});
  EXPECT_EQ(hello_of(R"({"name":"a","later":[{"x":1}],"pid":0})").name, "a");
  EXPECT_EQ(remote::describe(hello, 1), "loader on host7, pid 4711");
  EXPECT_EQ(remote::describe({}, 0xc0ffee), "producer 0000000000c0ffee");
}

TEST(FramedText, NamesAreMadePrintableAndCut) {
  const remote::FramedHello hello =
      hello_of(R"({"name":"a\u001b[31m\nb\u00e4","host":")" + std::string(200, 'h') + "\"}");
  EXPECT_EQ(hello.name, "a?[31m?b??");
  EXPECT_EQ(hello.host, std::string(100, 'h'));
  EXPECT_EQ(hello_of(remote::write_framed_hello(
                         {.name = "a\n\"b\xff", .host = {}, .boot = {}, .pool = {}}))
                .name,
            "a?\"b?");
}

TEST(FramedText, HellosThatAreNoneAreNamed) {
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal_of_hello(""), "is no JSON object"));
  EXPECT_TRUE(has(refusal_of_hello("[1]"), "is no JSON object"));
  EXPECT_TRUE(has(refusal_of_hello("{\"name\":\"\xff\"}"), "is no JSON object"));
  EXPECT_TRUE(has(refusal_of_hello(std::string(4096, '[')), "is no JSON object"));
  EXPECT_TRUE(has(refusal_of_hello(std::string(4097, ' ')), "4097 bytes; expected at most 4096"));
  EXPECT_TRUE(has(refusal_of_hello(R"({"name":5})"), "a name that is no string"));
  EXPECT_TRUE(has(refusal_of_hello(R"({"pid":-1})"), "no pid that is a whole number"));
  EXPECT_TRUE(has(refusal_of_hello(R"({"pid":4294967296})"), "no pid"));
  EXPECT_TRUE(has(refusal_of_hello(R"({"pool":7})"), "a pool that is no string"));
  EXPECT_TRUE(has(refusal_of_hello(R"({"pool":"/tmp/x"})"), "names the pool '/tmp/x'"));
  EXPECT_TRUE(has(refusal_of_hello(R"({"pool":"@a\u0000b"})"), "names the pool '@a?b'"));
  EXPECT_TRUE(has(refusal_of_hello("{\"pool\":\"@" + std::string(107, 'p') + "\"}"), "the pool"));
}

TEST(FramedText, WelcomesAndRefusals) {
  const remote::FramedWelcome welcome{32, 224, 112, 3, 1000, "0f0f-11"};
  EXPECT_EQ(parsed(remote::parse_framed_welcome, remote::FramedKind::welcome,
                   remote::write_framed_welcome(welcome)),
            welcome);
  EXPECT_THROW(parsed(remote::parse_framed_welcome, remote::FramedKind::welcome, R"({"images":1})"),
               DataError);
  EXPECT_EQ(parsed(remote::parse_framed_refusal, remote::FramedKind::refusal,
                   remote::write_framed_refusal("no \"room\"")),
            "no \"room\"");
  const std::string long_text = parsed(remote::parse_framed_refusal, remote::FramedKind::refusal,
                                       remote::write_framed_refusal(std::string(9000, '"')));
  EXPECT_EQ(long_text, std::string(2000, '"'));
  EXPECT_THROW(parsed(remote::parse_framed_refusal, remote::FramedKind::welcome, "{}"), DataError);
}

}  // namespace
}  // namespace penstock
