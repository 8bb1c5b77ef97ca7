// SPDX-License-Identifier: Apache-2.0
// Messages of Penstock's format: batches, leases and credits.
#include "feeders/remote/wire/framed.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/remote/wire/framed_texts.h"
#include "tests/support/framed_messages.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr BatchSpec kSpec{.images = 2, .image = {2, 3, 1}, .classes = 10};

FrameBytes counted(std::size_t size) {
  FrameBytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

FrameBytes labels(std::vector<std::int32_t> values) {
  return bytes_of_list(std::span<const std::int32_t>(values));
}

FrameList good_batch(bool with_checksum = false) {
  return framed_message(pixels_header(kSpec), {counted(12), labels({3, 7})}, with_checksum);
}

/// The error message for a message that is read as a batch of pixels.
std::string refusal(const FrameList& frames) {
  return thrown_by<DataError>(
      [&] { remote::framed_pixels(remote::parse_framed(views_of(frames)), kSpec); });
}

/// A batch of three samples and 10 bytes.
remote::FramedHeader arrays_header() {
  return {.kind = remote::FramedKind::batch,
          .encoding = remote::FramedEncoding::arrays,
          .producer = 7,
          .images = 3};
}

TEST(Framed, ArraysThatAreNoImagesHaveSamplesAndBytesOfTheirOwn) {
  BatchSpec spec = kSpec;
  spec.opaque = true;
  const FrameList frames = framed_message(arrays_header(), {counted(10)}, true);
  const auto read = [&](const FrameList& message) {
    return remote::framed_pixels(remote::parse_framed(views_of(message)), spec);
  };
  const auto views = views_of(frames);
  const remote::WireBatch batch = remote::framed_pixels(remote::parse_framed(views), spec);
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.pixels.data(), frames[1].data());
  EXPECT_EQ(batch.pixels.size(), 10U);
  EXPECT_TRUE(says(refusal(frames), "a run with zmq-consume:batch=3xBYTESB takes it"));
  const auto refused = [&](const FrameList& message) {
    return thrown_by<DataError>([&] { read(message); });
  };
  EXPECT_TRUE(says(refused(good_batch()), "this run takes arrays that are no images"));
  EXPECT_TRUE(says(refused(framed_message(arrays_header(), {counted(13)})),
                   "13 bytes; expected at most 12"));
  EXPECT_TRUE(says(refused(framed_message(arrays_header(), {counted(4), counted(4)})),
                   "expected one: the arrays"));
  remote::FramedHeader header = arrays_header();
  header.height = 2;
  EXPECT_TRUE(says(refused(framed_message(header, {counted(4)})), "expected 0"));
  header = arrays_header();
  header.images = 1U << 31;
  EXPECT_TRUE(says(refused(framed_message(header, {counted(4)})), "expected at least one"));
}

TEST(Framed, ABatchOfPixelsIsReadWithoutACopy) {
  for (const bool with_checksum : {false, true}) {
    const FrameList frames = good_batch(with_checksum);
    const auto views = views_of(frames);
    EXPECT_EQ(remote::detect_message_format(views), remote::MessageFormat::framed);
    remote::BatchMessageReader reader(kSpec);
    const remote::WireBatch batch = reader.read(remote::MessageFormat::framed, views);
    EXPECT_EQ(batch.pixels.data(), frames[1].data());
    EXPECT_EQ(batch.pixels.size(), 12U);
    EXPECT_EQ(batch.labels.data(), frames[2].data());
  }
}

TEST(Framed, WhatAHeaderSaysIsChecked) {
  const auto refused = [](auto change, std::string_view why) {
    remote::FramedHeader header = pixels_header(kSpec);
    change(header);
    const FrameList frames = framed_message(header, {counted(12), labels({3, 7})});
    EXPECT_TRUE(says(refusal(frames), why));
  };
  refused([](auto& h) { h.kind = remote::FramedKind{4}; }, "its kind is 4");
  refused([](auto& h) { h.encoding = remote::FramedEncoding{4}; }, "of its kind, batch, is 4");
  refused([](auto& h) { h.encoding = remote::FramedEncoding::none; }, "expected 1, pixels");
  refused([](auto& h) { h.flags = 4; }, "the flags of its kind, batch, are 4");
  refused([](auto& h) { h.producer = 0; }, "producer's number is 0");
  refused([](auto& h) { h.checksum = 5; }, "flag 1");
  refused([](auto& h) { h.pixel = remote::FramedPixel{4}; },
          "are 4 and 0; expected 0 to 3, and 0 or 1");
  refused([](auto& h) { h.planar = 2; }, "are 0 and 2");
  refused([](auto& h) { h.encoding = remote::FramedEncoding::jpeg, h.planar = 1; },
          "are 0 and 1; expected 0 and 0");
  refused([](auto& h) { h.pixel = remote::FramedPixel::f32; },
          "the pixels have 12 bytes; expected 48");
  refused([](auto& h) { h.images = 0; }, "it has 0 images; expected at least one");
  refused([](auto& h) { h.height = 3; }, "the pixels have 12 bytes; expected 18");
  refused([](auto& h) { h.height = h.width = h.channels = UINT32_MAX; }, "expected less than 2^64");
  refused([](auto& h) { h.height = 3, h.width = 2; },
          "pixels are u8 [2,3,2,1]; expected u8 [2,2,3,1]");
  refused(
      [](auto& h) {
        h.encoding = remote::FramedEncoding::jpeg, h.height = h.width = h.channels = 0;
      },
      "2 frames follow the header of its kind, batch; expected three");
  refused([](auto& h) { h.flags = remote::kFramedShared; }, "expected one, the lease");
}

TEST(Framed, PixelsMayBeNumbersAndPlanar) {
  BatchSpec spec = kSpec;
  spec.pixel = DType::f32;
  spec.normalised = spec.planar = true;
  remote::FramedHeader header = pixels_header(kSpec);
  header.pixel = remote::FramedPixel::f32;
  header.planar = 1;
  const FrameList frames = framed_message(header, {counted(48), labels({3, 7})});
  EXPECT_EQ(remote::framed_pixels(remote::parse_framed(views_of(frames)), spec).pixels.size(), 48U);
  EXPECT_EQ(refusal(frames),
            "framed message: pixels are f32 [2,1,2,3]; expected u8 [2,2,3,1]; a run with "
            "zmq-consume:pixels=f32,planar=true takes it");
}

TEST(Framed, FramesAreWhatTheHeaderSays) {
  const remote::FramedHeader header = pixels_header(kSpec);
  FrameList frames = good_batch();
  frames[0][8] = std::byte{2};
  EXPECT_TRUE(says(refusal(frames), "of version 2 of the format; this is a reader of 1"));
  frames = good_batch();
  frames[0][78] = std::byte{1};
  EXPECT_TRUE(says(refusal(frames), "reserved bytes"));
  frames = good_batch();
  frames[0].resize(95);
  EXPECT_TRUE(says(refusal(frames), "its header has 95 bytes; expected 96"));
  frames[0].resize(9);
  EXPECT_TRUE(says(refusal(frames), "its header has 9 bytes"));
  EXPECT_TRUE(says(refusal({}), "PENSTOCK"));
  frames = good_batch();
  frames[2].push_back({});
  EXPECT_TRUE(says(refusal(frames), "says that 20 bytes follow; there are 21"));
  frames = framed_message(header, {counted(13), FrameBytes(7)});
  EXPECT_TRUE(says(refusal(frames), "the pixels have 13 bytes; expected 12"));
  frames = framed_message(header, {counted(12), FrameBytes(7)});
  EXPECT_TRUE(says(refusal(frames), "the labels have 7 bytes; expected 8"));
  frames = framed_message(header, {counted(12), labels({3, 10})});
  EXPECT_EQ(refusal(frames), "framed message: label 1 is 10; expected 0 to 9");
  frames = framed_message(header, {counted(12), labels({3, 7}), {}});
  EXPECT_TRUE(says(refusal(frames), "3 frames follow"));
  frames = good_batch(true);
  frames[1][5] ^= std::byte{1};
  EXPECT_TRUE(says(refusal(frames), "the checksum of batch 0 is"));

  BatchSpec larger = kSpec;
  larger.images = 3;
  frames = framed_message(pixels_header(larger), {counted(18), labels({1, 2, 3})});
  EXPECT_TRUE(says(refusal(frames), "; a run with --batch-size 3 takes it"));
  frames = framed_message(header_of(remote::FramedKind::end), {});
  EXPECT_TRUE(says(refusal(frames), "it is of kind end; expected a batch"));
}

TEST(Framed, FilesAndLabelsOfABatchOfJpegFiles) {
  const FrameList frames =
      framed_message(jpeg_header(3), jpeg_payload({"one", "", "three"}, {4, 9, 0}), true);
  const auto views = views_of(frames);
  const remote::FramedImages images(remote::parse_framed(views), kSpec);
  ASSERT_EQ(images.size(), 3U);
  const auto text = [&](std::size_t i) {
    const auto file = images.file(i);
    return std::string(reinterpret_cast<const char*>(file.data()), file.size());
  };
  EXPECT_EQ(text(0), "one");
  EXPECT_EQ(text(1), "");
  EXPECT_EQ(text(2), "three");
  EXPECT_EQ(images.label(0), 4);
  EXPECT_EQ(images.label(1), 9);
  EXPECT_EQ(images.label(2), 0);
  EXPECT_TRUE(says(refusal(frames), "a batch of JPEG files; expected pixels"));
}

TEST(Framed, BatchesOfJpegFilesThatDoNotAddUpAreNamed) {
  const auto said = [](const remote::FramedHeader& header, const FrameList& payload) {
    const FrameList frames = framed_message(header, payload);
    return thrown_by<DataError>(
        [&] { remote::FramedImages(remote::parse_framed(views_of(frames)), kSpec).size(); });
  };
  const FrameList good = jpeg_payload({"one", "two"}, {1, 2});
  EXPECT_TRUE(says(said(jpeg_header(0), good), "0 images; expected 1 to 65536"));
  EXPECT_TRUE(says(said(jpeg_header(65'537), good), "65537 images"));
  EXPECT_TRUE(says(said(jpeg_header(3), good), "the lengths have 8 bytes; expected 12"));
  remote::FramedHeader header = jpeg_header(2);
  header.height = 224;
  EXPECT_TRUE(says(said(header, good), "are 224, 0 and 0; expected 0"));
  FrameList bad = good;
  bad[1].pop_back();
  EXPECT_TRUE(says(said(jpeg_header(2), bad), "add up to 6 bytes; the files have 5"));
  bad = good;
  bad[2].pop_back();
  EXPECT_TRUE(says(said(jpeg_header(2), bad), "the labels have 7 bytes"));
  EXPECT_TRUE(says(said(jpeg_header(2), jpeg_payload({"a", "b"}, {1, -1})), "label 1 is -1"));
  EXPECT_TRUE(says(said(pixels_header(kSpec), {counted(12), labels({3, 7})}),
                   "a batch of pixels; expected JPEG files"));
}

TEST(Framed, ALeaseStandsForFramesInSharedMemory) {
  const remote::FramedLease lease{.lease = 5, .offset = 8192, .bytes = 64 + 8};
  const FrameList payload{counted(12), labels({3, 7})};
  const FrameList sum = framed_message(pixels_header(kSpec), payload, true);
  remote::FramedHeader header = remote::parse_framed(views_of(sum)).header;
  header.flags |= remote::kFramedShared;
  const FrameList frames = framed_message(header, {lease_frame(lease)});
  const auto views = views_of(frames);
  const remote::FramedMessage message = remote::parse_framed(views);
  ASSERT_TRUE(message.is_shared());
  EXPECT_EQ(remote::framed_lease(message), lease);
  EXPECT_TRUE(says(refusal(frames), "is in shared memory"));

  const auto divided = [&](std::span<const std::byte> bytes, const remote::FramedHeader& of) {
    return thrown_by<DataError>([&] { remote::divide_framed_lease(of, bytes); });
  };
  FrameBytes bytes = shared_bytes(payload);
  const auto shared = remote::divide_framed_lease(message.header, bytes);
  EXPECT_EQ(remote::framed_pixels({message.header, shared}, kSpec).labels.data(),
            bytes.data() + 64);
  EXPECT_TRUE(says(divided(bytes, jpeg_header(2)), "JPEG files in shared memory"));
  bytes[64] ^= std::byte{1};
  EXPECT_TRUE(says(divided(bytes, message.header), "checksum"));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(says(divided(std::span(bytes).first(size), message.header), "too few for")) << size;
  }

  header = jpeg_header(2);
  header.flags = remote::kFramedShared;
  const FrameList files = framed_message(header, {lease_frame(lease)});
  EXPECT_TRUE(says(thrown_by<DataError>([&] {
                     remote::FramedImages(remote::parse_framed(views_of(files)), kSpec).size();
                   }),
                   "is in shared memory"));
  header = pixels_header(kSpec);
  header.flags = remote::kFramedShared;
  EXPECT_TRUE(says(refusal(framed_message(header, {FrameBytes(31)})), "its lease has 31 bytes"));
  EXPECT_TRUE(
      says(refusal(framed_message(header, {lease_frame({.offset = 64})})), "a multiple of 4096"));
  FrameBytes frame = lease_frame(lease);
  frame.back() = std::byte{1};
  EXPECT_TRUE(says(refusal(framed_message(header, {frame})), "reserved bytes of its lease"));
}

TEST(Framed, ACreditGivesLeasesBack) {
  const std::vector<std::uint64_t> numbers = {3, UINT64_MAX, 0};
  const FrameList some = framed_message(header_of(remote::FramedKind::credit),
                                        {bytes_of_list(std::span<const std::uint64_t>(numbers))});
  EXPECT_EQ(remote::framed_credit_leases(remote::parse_framed(views_of(some))), numbers);
  const FrameList none = framed_message(header_of(remote::FramedKind::credit), {});
  EXPECT_TRUE(remote::framed_credit_leases(remote::parse_framed(views_of(none))).empty());
  const FrameList odd = framed_message(header_of(remote::FramedKind::credit), {FrameBytes(12)});
  EXPECT_THROW(remote::framed_credit_leases(remote::parse_framed(views_of(odd))), DataError);
  const FrameList end = framed_message(header_of(remote::FramedKind::end), {});
  EXPECT_THROW(remote::framed_credit_leases(remote::parse_framed(views_of(end))), DataError);
  const FrameList more = framed_message(header_of(remote::FramedKind::end), {FrameBytes(1)});
  EXPECT_TRUE(says(refusal(more), "expected none"));
}

// ---- framed text -------------------------------------------------------------

// Hellos, welcomes and refusals in Penstock's format.

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

TEST(FramedText, InvalidHellosAreNamed) {
  EXPECT_TRUE(says(refusal_of_hello(""), "is no JSON object"));
  EXPECT_TRUE(says(refusal_of_hello("[1]"), "is no JSON object"));
  EXPECT_TRUE(says(refusal_of_hello("{\"name\":\"\xff\"}"), "is no JSON object"));
  EXPECT_TRUE(says(refusal_of_hello(std::string(4096, '[')), "is no JSON object"));
  EXPECT_TRUE(says(refusal_of_hello(std::string(4097, ' ')), "4097 bytes; expected at most 4096"));
  EXPECT_TRUE(says(refusal_of_hello(R"({"name":5})"), "a name that is no string"));
  EXPECT_TRUE(says(refusal_of_hello(R"({"pid":-1})"), "no pid that is a whole number"));
  EXPECT_TRUE(says(refusal_of_hello(R"({"pid":4294967296})"), "no pid"));
  EXPECT_TRUE(says(refusal_of_hello(R"({"pool":7})"), "a pool that is no string"));
  EXPECT_TRUE(says(refusal_of_hello(R"({"pool":"/tmp/x"})"), "names the pool '/tmp/x'"));
  EXPECT_TRUE(says(refusal_of_hello(R"({"pool":"@a\u0000b"})"), "names the pool '@a?b'"));
  EXPECT_TRUE(says(refusal_of_hello("{\"pool\":\"@" + std::string(107, 'p') + "\"}"), "the pool"));
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
