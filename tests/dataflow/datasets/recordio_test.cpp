// SPDX-License-Identifier: Apache-2.0
// RecordIO files that Python wrote, and damaged ones.
#include "dataflow/datasets/recordio.h"

#include <algorithm>

#include "dataflow/error.h"
#include "tests/support/packed_set.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class RecordioTest : public PackedSet {
 protected:
  void SetUp() override {
    PackedSet::SetUp();
    if (!IsSkipped()) pack("recordio", "set.rec");
  }

  std::string file() const { return read_text(path("set.rec")); }
  void set_file(const std::string& bytes) { write_text(path("set.rec"), bytes); }
  std::vector<std::uint64_t> offsets() const {
    return datasets::parse_recordio_index(read_text(path("set.idx")));
  }
  /// Checks that record `lost` is damaged, for reason `problem`, and that all others are unchanged.
  void expect_lost(const std::string& source, std::size_t lost, const std::string& problem) {
    const auto opened = open(source);
    const Images found = all_of(*opened);
    ASSERT_EQ(found.size(), images_.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i != lost) {
        EXPECT_EQ(found[i], images_[i]) << i;
        continue;
      }
      EXPECT_EQ(found[i].first, -1);
      const std::string place = "set.rec' at byte " + std::to_string(offsets()[i]) + ": ";
      EXPECT_TRUE(says(message_of(found[i]), place));
      EXPECT_TRUE(says(message_of(found[i]), problem));
    }
  }
};

TEST_F(RecordioTest, GivesWhatWasPacked) {
  for (const char* source : {"recordio", "recordio:index=beside"}) {
    const auto opened = open(source);
    EXPECT_EQ(opened->facts().classes, 3);
    EXPECT_EQ(opened->facts().note, "");
    EXPECT_EQ(all_of(*opened), images_) << source;
  }
  // The first record has five parts; the magic number ends four of them.
  const std::string first = file().substr(0, offsets()[1]);
  std::size_t heads = 0;
  for (std::size_t at = 0; (at = first.find("\x0a\x23\xd7\xce", at)) != first.npos; at += 4) {
    heads += at % 4 == 0 ? 1 : 0;
  }
  EXPECT_GE(heads, 3U);
}

TEST_F(RecordioTest, OfSeveralLabelsTakesTheFirstAndSaysSo) {
  pack("recordio", "set.rec", "labels=3");
  const auto opened = open("recordio");
  EXPECT_EQ(all_of(*opened), images_);
  EXPECT_EQ(opened->facts().note, "12 records have several labels, of which the first is taken");
}

TEST_F(RecordioTest, FeedsARun) {
  run("recordio");
  pack("recordio", "set.rec", "labels=2");
  const std::vector<std::string> notes = run("recordio:index=beside").notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note.find("several labels") != std::string::npos;
  })) << testing::PrintToString(notes);
}

TEST_F(RecordioTest, DamageCostsItsRecordAlone) {
  const std::string good = file();
  const std::vector<std::uint64_t> at = offsets();
  const auto damage = [&](std::uint64_t offset, char byte) {
    std::string bad = good;
    bad[offset] = byte;
    set_file(bad);
  };
  for (const char* source : {"recordio", "recordio:index=beside"}) {
    damage(at[3] + 7, '\x7f');  // flag 3, and a length beyond the file's end
    if (source == std::string("recordio")) expect_lost(source, 3, "a record that has no beginning");
    damage(at[3] + 6, '\x0f');
    expect_lost(source, 3, "are left");
    damage(at[3] + 4, '\x08');  // too short
    if (source != std::string("recordio")) expect_lost(source, 3, "before the next record begins");
    damage(at[3] + 15, '\x7f');  // the label: 1.7e38
    expect_lost(source, 3, "not the number of a class");
    damage(at[3] + 15, '\xbf');  // negative
    expect_lost(source, 3, "not the number of a class");
    damage(at[3] + 10, '\x01');  // 65536 labels
    expect_lost(source, 3, "should have 65536 labels");
    damage(at[0] + 7, '\x80');  // flag 4
    if (source == std::string("recordio")) expect_lost(source, 0, "its flag is 4");
    set_file(good.substr(0, good.size() - 8));
    expect_lost(source, 11, "are left");
  }
  damage(at[3], 'x');
  expect_lost("recordio", 3, "does not begin with the magic number");
  EXPECT_TRUE(
      says(refusal("recordio:index=beside"), "no record begins at byte " + std::to_string(at[3])));
}

TEST_F(RecordioTest, AnIndexHasToAgree) {
  const std::string source = "recordio:index=beside", good = read_text(path("set.idx"));
  const auto refused_with = [&](const std::string& index, const std::string& problem) {
    write_text(path("set.idx"), index);
    const std::string said = refusal(source);
    EXPECT_TRUE(says(said, "set.idx' does not agree"));
    EXPECT_TRUE(says(said, problem));
  };
  refused_with("", "one of them is empty");
  refused_with(good.substr(good.find('\n') + 1), "lacks the record at byte 0");
  refused_with(good.substr(0, good.rfind('\n', good.size() - 2) + 1), "lacks the record at");
  refused_with(good + "12\t" + std::to_string(file().size()) + "\n", "no record begins at byte");
  refused_with(good + "12\t0\n", "offset 0 is there twice");
  for (const char* line : {"12", "12\t", "12 40", "12\t-4", "12\t41", "12\t4x", "\n"}) {
    refused_with(good + line + "\n", "line 13 is no key");
  }
  refused_with(good + "12\t99999999999999999999", "line 13 is no key");
  std::filesystem::remove(path("set.idx"));
  EXPECT_TRUE(says(refusal(source), "set.idx' cannot be read"));
  EXPECT_TRUE(says(refusal("recordio:index=maybe"), "expected walk or beside"));
}

TEST_F(RecordioTest, WhatIsNoRecordioIsRefused) {
  set_file(std::string(1000, 'x'));
  EXPECT_TRUE(says(refusal("recordio"), "set.rec' has no RecordIO record"));
  plan_.directory = path("");
  EXPECT_TRUE(says(refusal("recordio"), "set.rec' has no RecordIO record"));
}

}  // namespace
}  // namespace penstock
