// SPDX-License-Identifier: Apache-2.0
// Documents as text and as Markdown.
#include "bench/document/document.h"

#include <gtest/gtest.h>

#include <sstream>

namespace penstock::document {
namespace {

std::string text_of(const Document& document, std::size_t width = 0) {
  std::ostringstream out;
  write_text(document, out, width);
  return out.str();
}

std::string markdown_of(const Document& document) {
  std::ostringstream out;
  write_markdown(document, out);
  return out.str();
}

const Document kEveryBlock{
    Paragraphs{{"One is *first*.", "Two."}, "Note: "}, List{"Which:", {"a|b", "c"}},
    Table{{{"name"}, {"img/s", true}, {"status"}}, {{"queue", "7.5", "ok"}, {"cpu", "1000.0", ""}}},
    Verbatim{"Again: ", "penstock run --model 'a_b'"}};

TEST(DocumentText, HasAnEmptyLineBetweenBlocksAndAlignedColumns) {
  EXPECT_EQ(text_of(kEveryBlock),
            "Note: One is *first*.\n"
            "Note: Two.\n"
            "\n"
            "Which:\n"
            "- a|b\n"
            "- c\n"
            "\n"
            "name    img/s  status\n"
            "queue     7.5  ok\n"
            "cpu    1000.0\n"
            "\n"
            "Again: penstock run --model 'a_b'\n");
}

TEST(DocumentText, WrapsBetweenWordsBelowTheText) {
  EXPECT_EQ(text_of({List{{}, {"one two three", "unbreakable_word x"}}}, 10),
            "- one two\n"
            "  three\n"
            "- unbreakable_word\n"
            "  x\n");
}

TEST(DocumentText, LeavesOutEmptyBlocks) {
  EXPECT_EQ(text_of({Paragraphs{{"a"}}, List{"Nothing:", {}}, Table{{{"name"}}, {}}, Verbatim{},
                     Paragraphs{{"b"}}}),
            "a\n\nb\n");
}

TEST(Document, HasSectionsTilesFactsAndVerdictsButNoFiguresInTexts) {
  const Document document{
      Section{
          "Rates",
          {Tiles{{{"alone", "3 img/s", "(once)"}}},
           Figure{.file = "a.svg", .draw = [](const FigureSize&) { return std::string("<"); }}}},
      Section{"Nothing", {List{"Empty:", {}}}},
      Section{"More", {Facts{{{"seed", "1"}}}}, /*collapsed=*/true},
      Verdict{{{"bad", "It loses."}}, /*answers=*/true}};
  EXPECT_EQ(text_of(document), "Rates\n\nalone: 3 img/s (once)\n\nMore\n\nseed: 1\n\nIt loses.\n");
  EXPECT_EQ(markdown_of(document),
            "## Rates\n\n- alone: 3 img/s (once)\n\n## More\n\n- seed: 1\n\n- It loses.\n");
}

TEST(DocumentMarkdown, EscapesAllButLinesToCopy) {
  EXPECT_EQ(markdown_of(kEveryBlock),
            "Note: One is \\*first\\*.\n"
            "\n"
            "Note: Two.\n"
            "\n"
            "Which:\n"
            "\n"
            "- a\\|b\n"
            "- c\n"
            "\n"
            "| name | img/s | status |\n"
            "|---|---:|---|\n"
            "| queue | 7.5 | ok |\n"
            "| cpu | 1000.0 |  |\n"
            "\n"
            "Again: `penstock run --model 'a_b'`\n");
}

TEST(DocumentMarkdown, ALineBreakEndsNoCell) {
  EXPECT_EQ(markdown_of({Table{{{"a"}}, {{"x\ny"}}}}), "| a |\n|---|\n| x y |\n");
}

}  // namespace
}  // namespace penstock::document
