// SPDX-License-Identifier: Apache-2.0
// Tar archives, block by block.
#include "dataflow/datasets/tar.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dataflow/datasets/webdataset.h"
#include "dataflow/error.h"
#include "tests/support/tar_writer.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

const std::string kEnd(1024, '\0');

/// Lists each regular file as "name=data ".
std::string list(const std::string& archive) {
  datasets::MemoryStream stream(std::as_bytes(std::span(archive)));
  datasets::TarReader tar(stream);
  std::string text;
  for (datasets::TarMember member; tar.next(member);) {
    std::string data(member.bytes, '\0');
    EXPECT_EQ(archive.substr(member.begin, 512).size(), 512U);
    tar.read(std::as_writable_bytes(std::span(data)));
    EXPECT_EQ(archive.substr(member.data, member.bytes), data);
    text += member.name + "=" + data + " ";
  }
  return text;
}

std::string problem_of(const std::string& archive) {
  return thrown_by<DataError>([&] { list(archive); });
}

TEST(Tar, GivesItsRegularFiles) {
  const std::string full_block(512, 'x');
  EXPECT_EQ(list(tar_file("a", "1") + tar_file("b", "") + tar_file("c", full_block) +
                 tar_file("d", "23") + kEnd),
            "a=1 b= c=" + full_block + " d=23 ");
  EXPECT_EQ(list(""), "");
  EXPECT_EQ(list(kEnd), "");
  EXPECT_EQ(list(tar_file("a", "1")), "a=1 ") << "without an end";
  EXPECT_EQ(list(tar_file("a", "1") + std::string(512, '\0')), "a=1 ") << "with half an end";
}

TEST(Tar, LeavesOutWhatIsNoRegularFile) {
  // A link and a folder state a size but have no data; an unknown type has data.
  EXPECT_EQ(list(tar_header({.name = "l", .size = "7", .type = '2'}) +
                 tar_header({.name = "f/", .size = "7", .type = '5'}) +
                 tar_member({.name = "v", .type = 'V'}, "data") +
                 tar_header({.name = "old/", .type = '\0', .magic = ""}) +
                 tar_member({.name = "old", .type = '\0', .magic = ""}, "1") +
                 tar_member({.name = "contiguous", .type = '7'}, "2") + kEnd),
            "old=1 contiguous=2 ");
}

TEST(Tar, TakesLongNamesFromWhereverTheyAre) {
  const std::string hundred(100, 'n'), long_name(300, 'l');
  EXPECT_EQ(list(tar_member({.name = hundred, .prefix = "a/b"}, "1")), "a/b/" + hundred + "=1 ");
  EXPECT_EQ(list(tar_member({.name = hundred, .magic = "ustar  ", .prefix = "times"}, "1")),
            hundred + "=1 ")
      << "GNU tar keeps times there";
  const std::string gnu = tar_member({.name = "././@LongLink", .type = 'L'}, long_name + '\0');
  const std::string link = tar_member({.name = "././@LongLink", .type = 'K'}, long_name + '\0');
  EXPECT_EQ(list(gnu + tar_file("short", "1") + tar_file("next", "2")), long_name + "=1 next=2 ");
  EXPECT_EQ(list(gnu + link + tar_header({.name = "short", .type = '2'}) + tar_file("next", "2")),
            "next=2 ")
      << "a long name ends with its member";
  const std::string pax = tar_member({.name = "x", .type = 'x'}, "12 path=a/b\n6 c=\n\n");
  EXPECT_EQ(list(pax + tar_file("short", "1")), "a/b=1 ");
  const std::string global = tar_member({.name = "g", .type = 'g'}, "12 path=a/b\n");
  EXPECT_EQ(list(global + tar_file("short", "1")), "short=1 ");
}

TEST(Tar, TakesSizesInEveryForm) {
  const std::string header =
      tar_header({.name = "a", .size = std::string("\x80", 1) + std::string(9, '\0') + "\x01\x02"});
  EXPECT_EQ(list(header + tar_padded(std::string(258, 'd'))), "a=" + std::string(258, 'd') + " ");
  const std::string pax = tar_member({.name = "x", .type = 'x'}, "10 size=3\n");
  EXPECT_EQ(list(pax + tar_header({.name = "a", .size = "777"}) + tar_padded("123")), "a=123 ");
  EXPECT_EQ(list(tar_header({.name = "a", .size = "  3 "}) + tar_padded("123")), "a=123 ");
}

/// One block, nine gibibytes of zeros, and another archive.
class Hole final : public datasets::ByteStream {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{9} << 30;
  Hole(std::string front, std::string back) : front_(std::move(front)), back_(std::move(back)) {}
  std::size_t read(std::span<std::byte> to) override {
    const bool in_front = position_ < front_.size();
    const std::string& text = in_front ? front_ : back_;
    const std::uint64_t at = in_front ? position_ : position_ - front_.size() - kBytes;
    const std::size_t count = std::min<std::size_t>(to.size(), text.size() - at);
    std::memcpy(to.data(), text.data() + at, count);
    position_ += count;
    return count;
  }
  std::uint64_t skip(std::uint64_t count) override {
    position_ += count;
    return count;
  }

 private:
  const std::string front_, back_;
};

TEST(Tar, PassesOverFilesBeyondEightGibibytes) {
  // 9 GiB = 2 * 256^4 + 64 * 256^3.
  const std::string size =
      std::string("\x80", 1) + std::string(6, '\0') + std::string("\x02\x40\0\0\0", 5);
  Hole stream(tar_header({.name = "large", .size = size}), tar_file("next", "1") + kEnd);
  datasets::TarReader tar(stream);
  datasets::TarMember member;
  ASSERT_TRUE(tar.next(member));
  EXPECT_EQ(member.bytes, Hole::kBytes);
  ASSERT_TRUE(tar.next(member));
  EXPECT_EQ(member.name, "next");
  EXPECT_EQ(member.begin, 512 + Hole::kBytes);
  EXPECT_FALSE(tar.next(member));
}

TEST(Tar, SaysWhatIsWrong) {
  const std::string good = tar_file("a", "1");
  std::string sum = good;
  sum[0] = 'b';
  EXPECT_TRUE(says(problem_of(good + sum), "checksum"));
  EXPECT_TRUE(says(problem_of(good + good.substr(0, 100)), "cut off in a header"));
  EXPECT_TRUE(says(problem_of(good + good.substr(0, 512)), "cut off in one of its files"));
  EXPECT_TRUE(says(problem_of(good + std::string(512, '\0') + good), "zeros"));
  EXPECT_TRUE(says(problem_of(tar_header({.size = "9"})), "octal"));
  EXPECT_TRUE(
      says(problem_of(tar_header({.size = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"})),
           "below 0"));
  EXPECT_TRUE(
      says(problem_of(tar_header({.size = "\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"})),
           "beyond all files"));
  EXPECT_TRUE(says(problem_of(tar_header({.size = "77777777", .type = 'L'})), "mebibyte"));
  EXPECT_TRUE(says(problem_of(tar_header({.type = 'S'})), "sparse"));
  for (const char* records : {"x", "7 path=a\n", "99 path=a\n", "8 path=a\n", "5 path\n", "0 a=b\n",
                              "99999999999999999999 a=b\n", "4 a\n", "-6 a=b\n"}) {
    const std::string pax = tar_member({.name = "x", .type = 'x'}, records);
    EXPECT_TRUE(says(problem_of(pax + good), "a pax header")) << records;
  }
  const std::string size = tar_member({.name = "x", .type = 'x'}, "11 size=-3\n");
  EXPECT_TRUE(says(problem_of(size + good), "a pax header has an invalid size"));
}

TEST(WebDatasetName, EndsAtTheFirstDotOfTheFilesName) {
  const auto split = [](std::string_view path) {
    const datasets::WebDatasetName name = datasets::split_webdataset_name(path);
    return std::string(name.key) + "|" + name.kind;
  };
  EXPECT_EQ(split("a.jpg"), "a|jpg");
  EXPECT_EQ(split("b.c/a.seg.PNG"), "b.c/a|seg.png");
  EXPECT_EQ(split("./x/a.cls"), "./x/a|cls");
  for (const char* path :
       {"", "a", "b.c/a", ".hidden.jpg", "b/._a.jpg", "__meta__/a.jpg", "__x__", "____"}) {
    EXPECT_EQ(split(path), "|") << path;
  }
  EXPECT_EQ(split("__x/a.jpg"), "__x/a|jpg");
}

}  // namespace
}  // namespace penstock
