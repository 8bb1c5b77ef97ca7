// SPDX-License-Identifier: Apache-2.0
#include "bench/record/rate_unit.h"

#include <utility>
#include <variant>

#include "bench/config/training_loop.h"

namespace penstock {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

struct InUnit {
  std::string unit;  ///< "samples/s"

  void operator()(std::string& text) const {
    const std::string sample = unit.substr(0, unit.find("s/"));
    replace_all(text, "img/s", unit);
    replace_all(text, "images/sec", unit);
    replace_all(text, "Images per second", sample + "s per second");
    replace_all(text, "us/img", "us/" + sample);
    replace_all(text, "bytes/img", "bytes/" + sample);
    replace_all(text, "for each image in this stage", "for each " + sample + " in this stage");
    replace_all(text, "/image", "/" + sample);
    replace_all(text, "Images trained", "Samples trained");
    replace_all(text, ": images that", ": " + sample + "s that");
  }
  void operator()(std::vector<std::string>& texts) const {
    for (std::string& text : texts) (*this)(text);
  }
  void operator()(document::Paragraphs& block) const { (*this)(block.texts); }
  void operator()(document::List& block) const { (*this)(block.items); }
  void operator()(document::Table& block) const {
    for (document::Column& column : block.columns) (*this)(column.name);
    for (auto& row : block.rows) (*this)(row);
  }
  void operator()(document::Verbatim&) const {}
  void operator()(document::Verdict& block) const {
    for (document::VerdictLine& line : block.lines) (*this)(line.text);
  }
  void operator()(document::Tiles& block) const {
    for (document::Tile& tile : block.tiles) (*this)(tile.value);
  }
  void operator()(document::Facts& block) const {
    for (auto& fact : block.facts) (*this)(fact.second);
  }
  void operator()(document::Figure& block) const {
    (*this)(block.heading);
    (*this)(block.caption);
    if (!block.draw) return;
    block.draw = [in_unit = *this, draw = std::move(block.draw)](const document::FigureSize& size) {
      std::string svg = draw(size);
      in_unit(svg);
      return svg;
    };
  }
  void operator()(document::Section& block) const {
    (*this)(block.heading);
    (*this)(block.blocks);
  }
  void operator()(document::Document& blocks) const {
    for (document::Block& block : blocks) {
      std::visit(*this, static_cast<document::BlockVariant&>(block));
    }
  }
};

constexpr std::string_view kImage = "img";

}  // namespace

std::string in_unit_of(const RunConfig& config, std::string text) {
  if (!trains_images(config)) InUnit{rate_unit(config)}(text);
  return text;
}

std::string sample_unit(const SweepResult& sweep) {
  for (const Row& row : sweep.rows) {
    if (!trains_images(row.config)) return sample_unit(row.config);
  }
  return std::string(kImage);
}

document::Document in_unit_of(const SweepResult& sweep, document::Document document) {
  const std::string unit = sample_unit(sweep);
  if (unit != kImage) InUnit{unit + "/s"}(document);
  return document;
}

}  // namespace penstock
