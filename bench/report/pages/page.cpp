// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/page.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "bench/report/figures/markup.h"
#include "dataflow/machine/output_file.h"
#include "penstock_figure_css.h"
#include "penstock_page_css.h"

namespace penstock::report {
namespace {

using document::Block;

/// Adds a capital letter and a full stop.
std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (std::string_view(".!?").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

/// Escapes the text and keeps numbers and units on one line.
std::string prose(std::string_view text) {
  constexpr std::string_view kNoBreak = "\xC2\xA0";
  std::string result = escaped(text);
  for (const std::string_view unit : {" %", " ms", " img/s", " cores"}) {
    for (std::size_t at = result.find(unit, 1); at != std::string::npos;
         at = result.find(unit, at + 1)) {
      const bool number = std::isdigit(static_cast<unsigned char>(result[at - 1])) != 0;
      if (number) result.replace(at, 1, kNoBreak);
    }
  }
  return result;
}

/// Each word of a command in an element, because lines may break only between words.
std::string words_of(std::string_view command) {
  std::string result;
  for (std::size_t end = 0; !command.empty(); command.remove_prefix(end)) {
    end = std::min(command.find(' '), command.size() - 1) + 1;  // the blank belongs to the word
    result += fmt::format("<span>{}</span>", escaped(command.substr(0, end)));
  }
  return result;
}

struct PageWriter {
  std::ostream& out;

  template <typename... Parts>
  void print(fmt::format_string<Parts...> format, Parts&&... parts) const {
    fmt::print(out, format, std::forward<Parts>(parts)...);
  }

  void write(const document::Document& document) const {
    for (const Block& block : document) {
      if (!is_empty(block)) std::visit(*this, static_cast<const document::BlockVariant&>(block));
    }
  }

  void operator()(const document::Paragraphs& block) const {
    const bool warns = block.look == document::Look::warning;
    if (warns) print("<div class=\"warnings\" role=\"note\">\n");
    for (const std::string& text : block.texts) {
      print("<p class=\"{}\">{}</p>\n", block.look == document::Look::soft ? "soft" : "",
            prose(warns ? as_sentence(text) : text));
    }
    if (warns) print("</div>\n");
  }

  void operator()(const document::List& block) const {
    if (!block.heading.empty()) print("<p>{}</p>\n", prose(block.heading));
    print("<ul>\n");
    for (const std::string& item : block.items) print("<li>{}</li>\n", prose(item));
    print("</ul>\n");
  }

  void operator()(const document::Table& block) const {
    const auto classes = [&](std::size_t column) {
      return block.columns[column].number ? " class=\"number\"" : "";
    };
    print("<div class=\"scroll\"><table>\n<thead><tr>");
    for (std::size_t i = 0; i < block.columns.size(); ++i) {
      print("<th scope=\"col\"{}>{}</th>", classes(i), escaped(block.columns[i].name));
    }
    print("</tr></thead>\n<tbody>\n");
    for (const std::vector<std::string>& row : block.rows) {
      print("<tr>");
      for (std::size_t i = 0; i < row.size(); ++i) {
        print("<td{} data-name=\"{}\">{}</td>", classes(i), escaped(block.columns[i].name),
              escaped(row[i]));
      }
      print("</tr>\n");
    }
    print("</tbody>\n</table></div>\n");
  }

  void operator()(const document::Verbatim& block) const {
    print("<pre>{}</pre>\n", block.command ? words_of(block.text) : escaped(block.text));
  }

  void operator()(const document::Verdict& block) const {
    auto line = block.lines.begin();
    if (block.answers) {
      print("<p class=\"lead {}\">{}</p>\n", line->tone, prose(line->text));
      ++line;
    }
    if (line == block.lines.end()) return;
    print("<ul class=\"verdict\">\n");
    for (; line != block.lines.end(); ++line) {
      print("<li class=\"{}\">{}</li>\n", line->tone, prose(line->text));
    }
    print("</ul>\n");
  }

  void operator()(const document::Tiles& block) const {
    print("<div class=\"tiles\">\n");
    for (const document::Tile& tile : block.tiles) {
      print("<div><span>{}</span> <b>{}</b> <span>{}</span></div>\n", escaped(tile.name),
            escaped(tile.value), escaped(tile.detail));
    }
    print("</div>\n");
  }

  void operator()(const document::Facts& block) const {
    print("<dl>\n");
    for (const auto& [name, value] : block.facts) {
      print("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
    }
    print("</dl>\n");
  }

  void operator()(const document::Figure& block) const {
    if (!block.heading.empty()) heading(block.heading);
    print("<figure>\n<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n",
          block.draw({.width = 860}), block.draw({.width = 360}));
    if (!block.caption.empty()) print("<figcaption>{}</figcaption>\n", prose(block.caption));
    print("</figure>\n");
  }

  void operator()(const document::Section& block) const {
    if (block.collapsed) {
      print("<details><summary>{}</summary>\n", escaped(block.heading));
    } else if (!block.heading.empty()) {
      heading(block.heading);
    }
    write(block.blocks);
    if (block.collapsed) print("</details>\n");
  }

  void heading(const std::string& text) const { print("<h2>{}</h2>\n", escaped(text)); }

  /// What stands before the first heading is the answer. Each heading begins a part that the reader
  /// opens.
  void write_parts(document::Document document) const {
    bool is_open = false;
    for (Block& block : document) {
      if (is_empty(block)) continue;
      const std::string begins = take_heading(block);
      if (!begins.empty()) {
        print("{}<details class=\"part\"><summary><h2>{}</h2></summary>\n",
              is_open ? "</details>\n" : "", escaped(begins));
        is_open = true;
      }
      std::visit(*this, static_cast<const document::BlockVariant&>(block));
    }
    if (is_open) print("</details>\n");
  }

  static std::string take_heading(Block& block) {
    if (auto* const figure = std::get_if<document::Figure>(&block)) {
      return std::exchange(figure->heading, {});
    }
    auto* const section = std::get_if<document::Section>(&block);
    return section == nullptr || section->collapsed ? "" : std::exchange(section->heading, {});
  }
};

}  // namespace

void write_page(std::string_view title, const document::Document& document, std::ostream& out) {
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>"
      << escaped(title) << "</title>\n<style>\n"
      << kPageCss << kFigureCss << "</style>\n</head>\n<body>\n<h1>" << escaped(title) << "</h1>\n";
  PageWriter{out}.write_parts(document);
  out << "</body>\n</html>\n";
}

void write_figure_files(const std::vector<document::Figure>& figures,
                        const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw DataError("cannot make the folder '{}': {}", folder.native(), error.message());
  }
  for (const document::Figure& figure : figures) {
    const std::filesystem::path path = folder / figure.file;
    if (figure.draw) {
      replace_file(path, figure.draw({.width = 720, .standalone = true}));
    } else {
      std::error_code nothing_to_remove;
      std::filesystem::remove(path, nothing_to_remove);
    }
  }
}

}  // namespace penstock::report
