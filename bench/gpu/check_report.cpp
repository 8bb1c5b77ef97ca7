// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "dataflow/machine/input_file.h"
#include "dataflow/machine/output_file.h"

namespace penstock::gpu {
namespace {

constexpr std::array<std::string_view, 4> kWords{"PASS", "FAIL", "SKIP", "NOTE"};

/// The JSON is written this often, so that a killed program leaves its results.
constexpr double kSecondsBetweenWrites = 1;

std::string_view word_for(Verdict verdict) { return kWords[static_cast<std::size_t>(verdict)]; }

}  // namespace

CheckReport::CheckReport(const CheckSettings& settings, std::string_view verb)
    : settings_(settings), verb_(verb) {
  if (settings_.resume && std::filesystem::exists(settings_.json)) read_json();
}

double CheckReport::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool CheckReport::is_asked_for(std::string_view name) const {
  std::string_view left = settings_.only;
  while (true) {
    const std::size_t comma = left.find(',');
    if (name.find(left.substr(0, comma)) != std::string_view::npos) return true;
    if (comma == std::string_view::npos) return false;
    left.remove_prefix(comma + 1);
  }
}

bool CheckReport::wants(std::string_view name) {
  if (!is_asked_for(name)) return false;
  const std::scoped_lock lock(mutex_);
  if (earlier_.contains(name)) return false;
  if (settings_.seconds <= 0 || seconds() < settings_.seconds) return true;
  ++left_out_;
  return false;
}

void CheckReport::add(std::string_view name, Verdict verdict,
                      const std::map<std::string, double>& figures, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  std::string line = fmt::format("{} {}", word_for(verdict), name);
  for (const auto& [unit, value] : figures) line += fmt::format(" {}={:.4g}", unit, value);
  if (!text.empty()) line += fmt::format(": {}", text);
  std::puts(line.c_str());
  std::fflush(stdout);
  if (const auto known = earlier_.find(name); known != earlier_.end()) {
    std::erase_if(lines_, [&](const Line& earlier) { return earlier.name == name; });
    earlier_.erase(known);
  }
  lines_.push_back({std::string(name), verdict, figures, std::string(text)});
  if (!settings_.json.empty() && seconds() - written_at_ >= kSecondsBetweenWrites) write_json();
}

std::size_t CheckReport::count(Verdict verdict) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(lines_, [&](const Line& line) { return line.verdict == verdict; }));
}

int CheckReport::finish() {
  const std::scoped_lock lock(mutex_);
  fmt::print("{}: {} passed, {} failed, {} skipped in {:.1f} s", verb_, count(Verdict::pass),
             count(Verdict::fail), count(Verdict::skip), seconds());
  if (left_out_ > 0) fmt::print("; {} not made, since the time was up", left_out_);
  if (!earlier_.empty()) fmt::print("; {} made earlier", earlier_.size());
  if (lines_.empty()) fmt::print("; no check has '{}' in its name", settings_.only);
  fmt::print("\n");
  if (!settings_.json.empty()) write_json();
  return count(Verdict::fail) > 0 ? 1 : 0;
}

/// Ignores a file of another verb and a damaged file.
void CheckReport::read_json() {
  const InputFile file(settings_.json);
  if (!file) return;
  const nlohmann::json json = nlohmann::json::parse(file.text(), nullptr, false);
  if (!json.is_object() || json.value("verb", "") != verb_) return;
  try {
    std::vector<Line> lines;
    for (const nlohmann::json& check : json.at("checks")) {
      Line line{check.at("name"), Verdict::note, {}, check.at("text")};
      const auto word = std::ranges::find(kWords, check.at("verdict").get<std::string>());
      if (word == kWords.end()) return;
      line.verdict = static_cast<Verdict>(word - kWords.begin());
      for (const auto& [unit, value] : check.at("figures").items()) {
        line.figures[unit] = value.is_number() ? value.get<double>() : std::nan("");
      }
      lines.push_back(std::move(line));
    }
    lines_ = std::move(lines);
  } catch (const nlohmann::json::exception&) {
    return;
  }
  for (const Line& line : lines_) earlier_.insert(line.name);
}

/// Renames the file into place, so that the file is complete at any time.
void CheckReport::write_json() {
  nlohmann::json checks = nlohmann::json::array();
  for (const Line& line : lines_) {
    nlohmann::json figures = nlohmann::json::object();
    for (const auto& [unit, value] : line.figures) {
      figures[unit] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
    }
    checks.push_back({{"name", line.name},
                      {"verdict", word_for(line.verdict)},
                      {"figures", std::move(figures)},
                      {"text", line.text}});
  }
  const nlohmann::json report{{"verb", verb_},
                              {"seconds", seconds()},
                              {"passed", count(Verdict::pass)},
                              {"failed", count(Verdict::fail)},
                              {"skipped", count(Verdict::skip)},
                              {"left_out", left_out_},
                              {"checks", std::move(checks)}};
  written_at_ = seconds();
  OutputFile file(settings_.json, "give --json a file in a folder that can be written");
  file.write(report.dump(1) + '\n');
  file.commit();
}

}  // namespace penstock::gpu
