// SPDX-License-Identifier: Apache-2.0
#include "bench/watch/watch_record.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "bench/record/result_json.h"
#include "bench/watch/loop_answer.h"
#include "bench/watch/watch_summary.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::watch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kSchema = 1;  ///< of the files and of the record
constexpr double kLongestUs = 366.0 * 86400e6;
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::size_t kLongestName = 800;  ///< bytes: 200 letters
constexpr std::size_t kLongestUnit = 20;
constexpr std::size_t kMostLine = std::size_t{16} << 20;  ///< bytes of a line
/// How a record begins; nothing else that Penstock writes does.
constexpr std::string_view kBegin = R"({"schema":1,"watch":)";

constexpr std::array<std::pair<std::string_view, double Loading::*>, 7> kLoading{
    {{"batches", &Loading::batches},
     {"samples", &Loading::samples},
     {"samples_us", &Loading::samples_us},
     {"samples_cpu_us", &Loading::samples_cpu_us},
     {"core_wait_us", &Loading::core_wait_us},
     {"collate_us", &Loading::collate_us},
     {"slowest_batch_us", &Loading::slowest_batch_us}}};

/// Numbers from 0 to `most`. JsonField::elements() would take 100 bytes for each.
std::vector<double> numbers(const JsonField& field, double most) {
  if (!field.json().is_array()) field.refuse("a list of numbers");
  std::vector<double> result;
  result.reserve(field.json().size());
  for (const Json& value : field.json()) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= most)) {
      JsonField(value, fmt::format("{}[{}]", field.path(), result.size()))
          .refuse(fmt::format("a number from 0 to {}", most));
    }
    result.push_back(number);
  }
  return result;
}

/// Without control characters, and not longer than `most` bytes.
std::string text_of(const JsonField& field, std::size_t most) {
  std::string text = field.text().substr(0, most);
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

/// The steps of one line of a file, or of one loop of a record.
Loop loop_of(const JsonField& field) {
  Loop loop{.name = field.at("loop").text(), .in_thread = field.at("in_thread").boolean()};
  if (loop.name.size() > kLongestName) field.at("loop").refuse("a name of at most 800 bytes");
  std::ranges::replace(loop.name, '\n', ' ');
  if (field.has("unit")) loop.unit = text_of(field.at("unit"), kLongestUnit);
  if (field.has("problem")) loop.problem = text_of(field.at("problem"), kLongestName);
  const std::vector<double> waits = numbers(field.at("wait_us"), kLongestUs);
  const std::vector<double> steps = numbers(field.at("step_us"), kLongestUs);
  const std::vector<double> images = numbers(field.at("images"), INT32_MAX);
  if (waits.size() != steps.size() || images.size() != steps.size()) {
    field.refuse(fmt::format("as many wait_us and images as step_us, which has {}", steps.size()));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    // Each was rounded down to a whole microsecond.
    if (waits[i] > steps[i]) field.at("wait_us").refuse("waits that are parts of their steps");
    loop.steps.push_back({waits[i], steps[i], static_cast<std::int32_t>(images[i])});
  }
  if (field.has("gpu_wait_us")) {
    const Json& gpu_waits = field.at("gpu_wait_us").json();
    if (!gpu_waits.is_array() || gpu_waits.size() != steps.size()) {
      field.refuse(fmt::format("as many gpu_wait_us as step_us, which has {}", steps.size()));
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Json& wait = gpu_waits[i];
      if (wait.is_null()) continue;
      if (!wait.is_number() || !(wait >= 0 && wait <= waits[i])) {
        field.at("gpu_wait_us").refuse("null, or parts of wait_us");
      }
      loop.steps[i].gpu_wait_us = wait.get<double>();
    }
  }
  for (const double begin : numbers(field.at("begins"), INT32_MAX)) {
    const auto index = static_cast<std::size_t>(begin);
    if (index >= loop.steps.size()) field.at("begins").refuse("numbers of steps");
    loop.steps[index].begins_epoch = true;
  }
  loop.ends_us = numbers(field.at("ends_us"), kLongestUs);
  if (field.has("waits_for_first")) loop.waits_for_first = field.at("waits_for_first").boolean();
  for (const auto& [name, member] : kLoaderSettings) {
    if (field.has("settings") && field.at("settings").has(name)) {
      loop.settings.*member = field.at("settings").at(name).count();
    }
  }
  for (const auto& [name, member] : kLoading) {
    if (field.has("loading")) loop.loading.*member = field.at("loading").at(name).amount();
  }
  if (field.has("workers")) {
    for (const JsonField& pid : field.at("workers").elements()) loop.workers.push_back(pid.count());
  }
  if (field.has("states")) {
    for (const auto& [name, n] : field.at("states").members()) loop.states[name] = n.amount();
  }
  return loop;
}

void append(Loop loop, std::vector<Loop>& loops) {
  const auto known = std::ranges::find_if(loops, [&](const Loop& other) {
    return other.name == loop.name && other.in_thread == loop.in_thread;
  });
  if (known == loops.end()) {
    loops.push_back(std::move(loop));
    return;
  }
  known->steps.insert(known->steps.end(), loop.steps.begin(), loop.steps.end());
  known->ends_us.insert(known->ends_us.end(), loop.ends_us.begin(), loop.ends_us.end());
  known->waits_for_first = loop.waits_for_first;
  known->unit = loop.unit;
  known->problem = loop.problem;
  known->settings = loop.settings;
  known->workers = loop.workers;
  if (loop.loading.batches > 0) known->loading = loop.loading;
}

/// All of a process but its loops.
void read_process(const JsonField& field, Rank& rank) {
  rank.rank = static_cast<std::int32_t>(field.at("rank").integer(0, kMostRanks));
  rank.pid = field.at("pid").integer(1, INT32_MAX);
  if (field.has("host")) rank.host = text_of(field.at("host"), kLongestName);
  rank.cuda = field.at("cuda").boolean();
}

Json to_json(const Loop& loop, const WatchRecord& record) {
  Json waits = Json::array(), steps = Json::array(), images = Json::array(), begins = Json::array();
  Json gpu_waits = Json::array();
  bool gpu_is_known = false;
  for (const Step& step : loop.steps) {
    if (step.begins_epoch) begins.push_back(steps.size());
    waits.push_back(static_cast<std::int64_t>(step.wait_us));
    steps.push_back(static_cast<std::int64_t>(step.step_us));
    images.push_back(step.images);
    gpu_waits.push_back(step.gpu_wait_us ? Json(static_cast<std::int64_t>(*step.gpu_wait_us))
                                         : Json());
    gpu_is_known = gpu_is_known || step.gpu_wait_us;
  }
  Json json = summary_json(summary_of(loop), loop.unit);
  json.update(Json{{"loop", loop.name},
                   {"in_thread", loop.in_thread},
                   {"unit", loop.unit},
                   {"wait_us", std::move(waits)},
                   {"step_us", std::move(steps)},
                   {"images", std::move(images)},
                   {"begins", std::move(begins)},
                   {"ends_us", loop.ends_us}});
  const LoopAnswer answer = answer_of(loop, record);
  json["waits"] = penstock::to_json(answer.waits);
  if (!answer.remedy.empty()) {
    json["remedy"] = answer.remedy;
    json["saves_percent"] = answer.saves_percent;
  }
  if (gpu_is_known) json["gpu_wait_us"] = std::move(gpu_waits);
  if (loop.waits_for_first) json["waits_for_first"] = true;
  if (!loop.problem.empty()) json["problem"] = loop.problem;
  for (const auto& [name, member] : kLoaderSettings) {
    if (loop.settings.*member >= 0) json["settings"][std::string(name)] = loop.settings.*member;
  }
  for (const auto& [name, member] : kLoading) {
    if (loop.loading.batches > 0) json["loading"][std::string(name)] = loop.loading.*member;
  }
  if (!loop.states.empty()) json["states"] = loop.states;
  return json;
}

void sort_ranks(std::vector<Rank>& ranks) {
  std::ranges::sort(ranks, {}, [](const Rank& rank) { return std::tuple(rank.rank, rank.pid); });
}

}  // namespace

double Loop::total_us() const {
  double sum = 0;
  for (const Step& step : steps) sum += step.step_us;
  return sum;
}

WorkerStates Loop::loading_percent() const {
  constexpr double kFewest = 20;
  const double time_us = std::accumulate(ends_us.begin(), ends_us.end(), total_us());
  double seen = 0;
  for (const auto& state : states) seen += state.second;
  if (!(seen >= kFewest) || loading.batches == 0 || settings.workers < 1) return {};
  // An idle worker waits for the numbers of the next samples, which looks like a network.
  const double loads = (loading.samples_us + loading.collate_us) / (settings.workers * time_us);
  WorkerStates shares = states;
  double& network = shares[std::string(kWaitsForNetwork)];
  const double idle = std::min(network, std::max(0.0, 1 - loads) * seen);
  network -= idle;
  // The kernel shows a runnable process alike with and without a processor.
  double& computes = shares[std::string(kComputes)];
  const double core = loading.waiting_for_core(), both = core + loading.computing();
  const double waits = both > 0 ? computes * core / both : 0;
  computes -= waits;
  shares[std::string(kWaitsForCore)] = waits;
  for (auto& state : shares) state.second *= 100 / std::max(1.0, seen - idle);
  return shares;
}

void add_line(std::string_view line, Rank& rank) {
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) throw DataError("a line is not JSON");
  const JsonField field(json);
  static_cast<void>(field.at("schema").integer(kSchema, kSchema));
  Rank read;
  read_process(field, read);
  append(loop_of(field), rank.loops);
  read.loops = std::move(rank.loops);
  rank = std::move(read);
}

void StepFiles::read() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (entry.path().extension() != ".jsonl") continue;
    File& file = files_[entry.path()];
    if (file.problem.empty()) read_more(entry.path(), file);
  }
}

void StepFiles::look_at_workers() noexcept try {
  read();
  for (auto& [path, file] : files_) {
    for (Loop& loop : file.rank.loops) {
      for (const std::int32_t worker : loop.workers) {
        const std::string_view state = state_of_worker(worker, file.rank.pid);
        if (!state.empty()) ++loop.states[std::string(state)];
      }
    }
  }
} catch (const std::exception&) {  // the next report gives the reason
}

void StepFiles::read_more(const std::filesystem::path& path, File& file) {
  try {
    const InputFile in(path);
    if (!in) throw DataError(in.problem());
    for (bool has_more = true; has_more;) {
      const std::string part = in.part(file.read, kMostLine);
      std::size_t begin = 0;
      for (std::size_t end = 0; (end = part.find('\n', begin)) != std::string::npos;) {
        add_line(std::string_view(part).substr(begin, end - begin), file.rank);
        file.read += end + 1 - begin;
        begin = end + 1;
      }
      has_more = part.size() == kMostLine;  // otherwise the last line has no end yet
      if (has_more && begin == 0) {
        throw DataError("a line has more than {} bytes", kMostLine);
      }
    }
  } catch (const DataError& error) {
    file.problem = error.what();
  }
}

void StepFiles::put_into(WatchRecord& record) const {
  record.ranks.clear();
  record.left_out.clear();
  for (const auto& [path, file] : files_) {
    if (!file.problem.empty()) {
      record.left_out.push_back(
          fmt::format("the file of process {} is damaged after {} bytes: {}; its steps from there "
                      "on are left out",
                      path.stem().native(), file.read, file.problem));
    }
    if (file.rank.loops.empty()) continue;
    Rank& rank = record.ranks.emplace_back(file.rank);
    for (const Loop& loop : rank.loops) {
      if (loop.problem.empty()) continue;
      record.left_out.push_back(fmt::format(
          "what the batches of the loop {} hold is not counted: {}", loop.name, loop.problem));
    }
    std::ranges::stable_sort(rank.loops, [](const Loop& a, const Loop& b) {
      return std::pair(b.in_thread, a.total_us()) > std::pair(a.in_thread, b.total_us());
    });
  }
  sort_ranks(record.ranks);
}

WatchRecord join_records(std::vector<WatchRecord> records) {
  WatchRecord joined = std::move(records.front());
  for (WatchRecord& more : std::span(records).subspan(1)) {
    joined.seconds = std::max(joined.seconds, more.seconds);
    if (joined.exit_code == 0 || !more.exit_code) joined.exit_code = more.exit_code;
    std::ranges::move(more.ranks, std::back_inserter(joined.ranks));
    std::ranges::move(more.left_out, std::back_inserter(joined.left_out));
  }
  sort_ranks(joined.ranks);
  return joined;
}

Json to_json(const WatchRecord& record) {
  Json ranks = Json::array();
  for (const Rank& rank : record.ranks) {
    Json loops = Json::array();
    for (const Loop& loop : rank.loops) loops.push_back(to_json(loop, record));
    ranks.push_back(Json{{"rank", rank.rank},
                         {"pid", rank.pid},
                         {"host", rank.host},
                         {"cuda", rank.cuda},
                         {"loops", std::move(loops)}});
  }
  return Json{{"schema", kSchema},
              {"watch",
               {{"command", record.command},
                {"seconds", record.seconds},
                {"exit_code", record.exit_code ? Json(*record.exit_code) : Json()},
                {"left_out", record.left_out}}},
              {"environment", penstock::to_json(record.environment)},
              {"ranks", std::move(ranks)}};
}

WatchRecord parse_record(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw DataError("it is not JSON");
  const JsonField field(json);
  static_cast<void>(field.at("schema").integer(kSchema, kSchema));
  const JsonField watch = field.at("watch");
  WatchRecord record{.seconds = watch.at("seconds").amount()};
  for (const JsonField& word : watch.at("command").elements()) {
    record.command.push_back(word.text());
  }
  for (const JsonField& reason : watch.at("left_out").elements()) {
    record.left_out.push_back(reason.text());
  }
  if (const JsonField code = watch.at("exit_code"); !code.is_null()) {
    record.exit_code = static_cast<int>(code.integer(0, 255));
  }
  record.environment = environment_from_json(field.at("environment").json());
  for (const JsonField& rank : field.at("ranks").elements()) {
    Rank& added = record.ranks.emplace_back();
    read_process(rank, added);
    for (const JsonField& loop : rank.at("loops").elements()) added.loops.push_back(loop_of(loop));
    if (added.loops.empty()) rank.at("loops").refuse("at least one loop");
  }
  return record;
}

std::optional<WatchRecord> read_record(const std::filesystem::path& path) {
  const std::filesystem::path file =
      std::filesystem::is_directory(path) ? path / "watch.json" : path;
  const InputFile in(file);
  if (in.part(0, kBegin.size()) != kBegin) return std::nullopt;
  try {
    return parse_record(in.text());
  } catch (const DataError& error) {
    throw DataError(
        "cannot read '{}' as a record of `penstock watch`: {}; record the training again",
        file.native(), error.what());
  }
}

}  // namespace penstock::watch
