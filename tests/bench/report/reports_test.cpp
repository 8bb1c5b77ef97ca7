// SPDX-License-Identifier: Apache-2.0
// Every report of the table, with text that looks like the syntax of report formats.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/record/report_text.h"
#include "bench/record/result_json.h"
#include "bench/record/step_parts.h"
#include "bench/report/report.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr const char* kNasty = "<script>alert(\"1\")</script> & 'x', a|b\nnext line";

SweepResult make_sweep() {
  SweepResult sweep;
  sweep.environment.cpu_model = "Some <CPU> & more";
  sweep.environment.usable_cores = 2;
  sweep.command = "penstock sweep --fake-location 'gpu,<b>'";
  sweep.seed = 42;
  sweep.repetitions = 3;
  sweep.rounds = {{1, 0}, {0, 1}, {0, 1}};
  sweep.warnings = {"<i>careful</i>"};
  sweep.varied = {&find_config_key("fake_location")};
  sweep.rows.push_back(make_ok_row("gpu", 1000, true));
  sweep.rows.push_back(make_ok_row("cpu", 750));
  for (Repetition& repetition : sweep.rows[1].repetitions) {
    repetition.result.starved_ms = {0, 3};
    repetition.result.memory = {{"device 0", 512, {512}}, {"device 1", 2048, {2048}}};
    repetition.result.facts["au_percent_rule"] = 92.5;
  }
  Row failed = make_row("host");
  add_repetition(failed, 0, make_result(Status::failed, 0, 0));
  failed.repetitions[0].result.reason = kNasty;
  sweep.rows.push_back(failed);
  Row absent = make_row("queue");
  absent.unavailable = "not built, \"really\"";
  sweep.rows.push_back(absent);
  summarise(sweep);
  return sweep;
}

std::string written(const char* report, const document::TerminalStyle& style = {},
                    const SweepResult& sweep = make_sweep()) {
  std::ostringstream text;
  find_entry(report::report_table(), report).write(sweep, style, text);
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Parses records of RFC 4180.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records(1, std::vector<std::string>(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& field = records.back().back();
    if (quoted && text[i] == '"' && text.substr(i + 1, 1) == "\"") {
      field += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      records.back().emplace_back();
    } else if (!quoted && text[i] == '\n') {
      if (i + 1 < text.size()) records.emplace_back(1);
    } else {
      field += text[i];
    }
  }
  return records;
}

TEST(JsonReport, HasTheSchema) {
  const auto json = nlohmann::json::parse(written("json"));
  EXPECT_EQ(json["schema"], kResultsSchema);
  EXPECT_EQ(json["environment"]["cpu_model"], "Some <CPU> & more");
  ASSERT_EQ(json["runs"].size(), 4U);
  const auto& run = json["runs"][1];
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(run["config"].contains(std::string(key.name))) << key.name;
  }
  EXPECT_EQ(run["status"], "ok");
  EXPECT_EQ(run["reason"], "");
  EXPECT_TRUE(run["input_cost"]["definition"].is_string());
  ASSERT_EQ(run["repetitions"].size(), 3U);
  EXPECT_EQ(run["repetitions"][2]["seed"], RunConfig{}.seed + 2);
}

TEST(JsonReport, WhatIsNotKnownIsNull) {
  const auto json = nlohmann::json::parse(written("json"));
  for (const std::size_t row : {2U, 3U}) {
    const auto& run = json["runs"][row];
    for (const char* figure : {"median", "low", "high"}) {
      EXPECT_TRUE(run["img_per_s"][figure].is_null());
      EXPECT_TRUE(run["input_cost"]["percent"][figure].is_null());
    }
    EXPECT_TRUE(run["input_cost"]["ms_per_step"].is_null());
    EXPECT_TRUE(run["input_cost"]["img_per_s_lost"].is_null());
  }
  EXPECT_EQ(json["runs"][2]["status"], "failed");
  EXPECT_EQ(json["runs"][2]["reason"], kNasty);
  EXPECT_EQ(json["runs"][3]["status"], "skipped");
}

TEST(JsonReport, SurvivesBytesThatAreNoText) {
  SweepResult sweep = make_sweep();
  sweep.rows[3].reason = "\xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(written("json", {}, sweep)));
}

TEST(CsvReport, QuotesAndRoundsNothing) {
  const auto records = parse_csv(written("csv"));
  ASSERT_EQ(records.size(), 5U);
  std::vector<std::map<std::string, std::string>> rows;
  for (const auto& record : records) {
    ASSERT_EQ(record.size(), records[0].size());
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < record.size(); ++i) row[records[0][i]] = record[i];
    EXPECT_EQ(row.size(), record.size()) << "names are unique";
  }
  EXPECT_EQ(rows[2]["fake_location"], "cpu");
  EXPECT_EQ(rows[2]["img_per_s_low"], "742.5");
  EXPECT_EQ(std::stod(rows[2]["input_cost_ms_per_step"]),
            make_sweep().rows[1].input_cost->ms_per_step.value);
  EXPECT_EQ(rows[2]["repetitions"], "3");
  EXPECT_EQ(rows[2]["step_ms_p50"], "2.0");
  EXPECT_EQ(rows[2]["device_idle_ms_p50"], "0.375");
  EXPECT_EQ(rows[2]["device_idle_percent"], "30.0");
  EXPECT_EQ(rows[2]["starved_ms_p50"], "1.5") << "of two steps: 0 and 3";
  EXPECT_EQ(rows[2]["starved_ms_max"], "3.0");
  EXPECT_EQ(rows[2]["late_ms_p99"], "") << "not known";
  EXPECT_EQ(rows[2]["memory_device_mib_max"], "2048.0") << "of the fuller device";
  EXPECT_EQ(rows[2]["memory_machine_mib_max"], "") << "not known";
  EXPECT_EQ(rows[2]["au_percent_rule"], "92.5");
  EXPECT_EQ(rows[2]["au_percent_dlio"], "") << "not known";
  EXPECT_EQ(rows[2]["environment_cpu_model"], "Some <CPU> & more");
  EXPECT_EQ(rows[3]["reason"], kNasty);
  EXPECT_EQ(rows[3]["img_per_s_median"], "");
  EXPECT_EQ(rows[4]["reason"], "not built, \"really\"");
}

TEST(HtmlReport, EscapesEveryText) {
  const std::string html = written("html");
  for (const char* raw : {"<script>", "<CPU>", "<i>careful", "<b>", "alert(\"1\")"}) {
    EXPECT_FALSE(says(html, raw)) << raw;
  }
  EXPECT_TRUE(says(html, "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;"));
  EXPECT_TRUE(says(html, "&#39;gpu,&lt;b&gt;&#39;")) << "the command";
}

TEST(HtmlReport, NeedsNoOtherFile) {
  std::string html = written("html");
  constexpr std::string_view kName = "http://www.w3.org/2000/svg";  // a namespace, never fetched
  for (std::size_t at = 0; (at = html.find(kName)) != std::string::npos;) {
    html.erase(at, kName.size());
  }
  for (const char* reference : {"src=", "href=", "url(", "@import", "http:"}) {
    EXPECT_FALSE(says(html, reference)) << reference;
  }
  EXPECT_TRUE(says(html, "prefers-color-scheme: dark"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
}

TEST(TableReport, KeepsToTheWidthOfTheTerminal) {
  for (const int width : {80, 100, 160}) {
    for (const std::string& line : lines_of(written("table", {width, false}))) {
      EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
  }
}

TEST(TableReport, HasARowForEachConfigurationAndSaysWhatStatusesMean) {
  const std::string table = written("table");
  EXPECT_TRUE(
      says(table, "cpu     750.0 (742.5..757.5)    25.0 (25.0..25.0)  33.33         30.0    ok"));
  EXPECT_TRUE(says(table, "failed: "));
  EXPECT_TRUE(says(table, "skipped: "));
  EXPECT_FALSE(says(table, "draining")) << "no row is";
  EXPECT_TRUE(says(table, "Warning: <i>careful</i>."));
}

TEST(TableReport, SaysOnceWhatIsRemarkableAboutAllRowsThatRan) {
  SweepResult sweep = make_sweep();
  for (Row& row : sweep.rows) {
    if (!row.repetitions.empty())
      row.notes = {"devices are slow", "row of " + row.config.fake_location};
  }
  const std::string table = written("table", {}, sweep);
  EXPECT_TRUE(says(table, "all rows: devices are slow."));
  EXPECT_EQ(table.find("devices are slow"), table.rfind("devices are slow")) << table;
  EXPECT_TRUE(says(table, "row of cpu"));
}

TEST(TableReport, IsColouredOnRequestOnly) {
  EXPECT_FALSE(says(written("table"), "\x1b"));
  EXPECT_TRUE(says(written("table", {100, true}), "\x1b[31mfailed\x1b[0m"));
}

TEST(MarkdownReport, HasCellsThatEndWhereTheyShould) {
  for (const std::string& line : lines_of(written("markdown"))) {
    if (!line.starts_with("| ")) continue;
    std::size_t bars = 1;  // the initial one
    for (std::size_t i = 1; i < line.size(); ++i) {
      bars += line[i] == '|' && line[i - 1] != '\\' ? 1 : 0;
    }
    const bool is_part = line.find("step") != std::string::npos && line.find("lost") == line.npos;
    const document::Table table = is_part ? parts_table(make_sweep()) : text_table(make_sweep());
    EXPECT_EQ(bars, table.columns.size() + 1) << line;
  }
}

TEST(ReportText, CountsTheDevicesOfAllProcesses) {
  SweepResult sweep = make_sweep();
  for (Row& row : sweep.rows) {
    row.config.num_gpus = 2;
    row.config.num_processes = 3;
  }
  EXPECT_TRUE(headline(sweep).starts_with("What it costs to feed 6 emulated devices that train "))
      << headline(sweep);
}

TEST(ReportText, HasNoNegativeZero) {
  EXPECT_EQ(format_fixed(-0.01, 1), "0.0");
  EXPECT_EQ(format_fixed(-0.06, 1), "-0.1");
  EXPECT_EQ(format_spread({1, -0.001, 2.25}, 1), "1.0 (0.0..2.2)");
}

}  // namespace
}  // namespace penstock
