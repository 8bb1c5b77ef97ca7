// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/launch.h"

#include <fmt/format.h>
#include <penstock_launchers_json.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::cluster {
namespace {

using Json = nlohmann::json;

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMostProcesses = 65536;
/// torchrun's store listens at the port itself.
constexpr std::int64_t kBesideTheStore = 1;
/// PyTorch's port, if only a host is given.
constexpr std::int64_t kUsualPort = 29500;

const Json& table() {
  static const Json launchers = Json::parse(kLaunchers);
  return launchers;
}

/// A value and the variable that has it.
struct Found {
  std::string name, text;
};

std::optional<Found> find_one(const FindVariable& find, const std::string& name) {
  const char* const text = find(name.c_str());
  if (text == nullptr) return std::nullopt;
  return Found{name, text};
}

/// The first variable that is set, of those that an entry has under `key`.
std::optional<Found> find_first(const FindVariable& find, const Json& entry, const char* key) {
  for (const Json& name : entry.value(key, Json::array())) {
    if (auto found = find_one(find, name.get<std::string>())) return found;
  }
  return std::nullopt;
}

/// Slurm writes "2(x3)" for 2 tasks on each of 3 nodes, and "2,1" for 2 on the first one.
std::int64_t number(const Found& found, std::int64_t least, std::int64_t most) {
  std::int64_t value = -1;
  const char* const last = found.text.data() + found.text.size();
  const auto [end, error] = std::from_chars(found.text.data(), last, value);
  const bool list = found.name == "SLURM_STEP_TASKS_PER_NODE" && end != last;
  if (error == std::errc{} && value >= least && value <= most &&
      (end == last || (list && (*end == '(' || *end == ',')))) {
    return value;
  }
  throw ConfigError(
      "reading the launcher's environment: {} is '{}', expected a whole number from {} to {}; "
      "correct or unset it",
      found.name, found.text, least, most);
}

/// The first host of Slurm's list: "node003" of "node[003-010,12],gpu1".
std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t end = std::min(list.find_first_of(",-]", at), list.size());
    host += list.substr(at + 1, end - at - 1);
    at = std::min(list.find(']', at), list.size());
  }
  return host;
}

/// A port that two jobs seldom share, below those that systems give out by themselves.
std::int64_t port_for(const std::string& job) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : job) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return 20000 + static_cast<std::int64_t>(hash % 10000);
}

std::string meeting_of(const FindVariable& find, const Json& entry, const std::string& job) {
  std::string host;
  if (const auto found = find_first(find, entry, "host")) host = found->text;
  if (host.empty() && entry.contains("hosts")) {
    if (const auto found = find_one(find, entry["hosts"])) host = first_host(found->text);
  }
  if (host.empty()) return {};
  std::int64_t port = job.empty() ? kUsualPort : port_for(job);
  if (const auto found = find_first(find, entry, "port")) port = number(*found, 1, 65534);
  const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return fmt::format("{}:{}", is_ipv6 ? "[" + host + "]" : host, port + kBesideTheStore);
}

/// The position of a process in a list of addresses, where the first one is the meeting.
void find_among(Launch& launch, const std::string& self, const std::vector<std::string>& all,
                std::string_view list) {
  const auto at = std::find(all.begin(), all.end(), self);
  if (at == all.end()) {
    throw ConfigError("reading the launcher's environment: {} has '{}', expected one of {}: {}",
                      launch.rank_name, self, list, fmt::join(all, ","));
  }
  if (std::find(at + 1, all.end(), self) != all.end()) {
    throw ConfigError("reading the launcher's environment: {} has '{}' twice", list, self);
  }
  launch.rank = static_cast<std::int32_t>(at - all.begin());
  launch.size = static_cast<std::int32_t>(all.size());
  port_of(all.front(), list);
  launch.meeting = all.front();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// TF_CONFIG: {"cluster": {"chief": [...], "worker": [...]}, "task": {"type": ..., "index": ...}}.
void read_tensorflow(Launch& launch, const std::string& text) try {
  const Json config = Json::parse(text);
  if (config.is_object() && !config.contains("cluster")) return;  // one process
  std::vector<std::string> all;
  std::string self;
  const auto type = config.at("task").at("type").get<std::string>();
  const Json& index = config.at("task").at("index");
  const auto position =
      index.is_string() ? std::stoul(index.get<std::string>()) : index.get<std::size_t>();
  for (const char* const role : {"chief", "master", "worker"}) {
    const auto tasks = config.at("cluster").value(role, std::vector<std::string>{});
    if (type == role) self = tasks.at(position);
    all.insert(all.end(), tasks.begin(), tasks.end());
  }
  if (self.empty()) {
    throw ConfigError(
        "reading the launcher's environment: TF_CONFIG says task '{}', expected chief or worker; "
        "start parameter servers with --job-name ps",
        type);
  }
  find_among(launch, self, all, "the tasks of its cluster");
} catch (const ConfigError&) {
  throw;
} catch (const std::exception&) {  // of the JSON library, or of a place that is not there
  throw ConfigError(
      "reading the launcher's environment: TF_CONFIG is '{}', expected JSON with cluster and task, "
      "whose index is that of one of its type; correct or unset it",
      text);
}

void expect_below(std::int32_t rank, const std::string& rank_name, std::int32_t size,
                  const std::string& size_name) {
  if (rank < size) return;
  throw ConfigError(
      "reading the launcher's environment: {} is {} and {} is {}, expected a rank below the number "
      "of processes; correct or unset them",
      rank_name, rank, size_name, size);
}

void read_numbers(Launch& launch, const FindVariable& find, const Json& entry, const Found& rank,
                  const std::optional<Found>& size) {
  launch.rank = static_cast<std::int32_t>(number(rank, 0, kMost - 1));
  launch.size = size ? static_cast<std::int32_t>(number(*size, 1, kMostProcesses)) : 0;
  if (size) expect_below(launch.rank, rank.name, launch.size, size->name);
  const auto local_rank = find_first(find, entry, "local_rank");
  const auto local_size = find_first(find, entry, "local_size");
  if (local_rank && local_size) {  // processes that meet over TCP count them again
    launch.local_rank = static_cast<std::int32_t>(number(*local_rank, 0, kMost - 1));
    launch.local_size = static_cast<std::int32_t>(number(*local_size, 1, kMost));
    expect_below(launch.local_rank, local_rank->name, launch.local_size, local_size->name);
  }
  std::vector<std::string> names;
  for (const Json& name : entry.value("job", Json::array())) {
    if (const auto found = find_one(find, name)) names.push_back(found->text);
  }
  launch.job = fmt::format("{}", fmt::join(names, "."));
  launch.meeting = meeting_of(find, entry, launch.job);
  if (const auto restarts = find_first(find, entry, "restarts")) {
    launch.restarts = static_cast<std::int32_t>(number(*restarts, 0, kMost));
  }
}

}  // namespace

std::optional<Launch> read_launch(const FindVariable& find) {
  for (const Json& entry : table()) {
    const auto rank = find_first(find, entry, "rank");
    if (!rank) continue;
    if (entry.contains("if") && !find_one(find, entry["if"])) continue;
    Launch launch{
        .launcher = entry.at("name"), .rank_name = rank->name, .mpi = entry.value("mpi", false)};
    if (!entry.contains("among")) {
      const auto size = find_first(find, entry, "size");
      if (!size && !entry.value("may_lack_size", false)) continue;
      read_numbers(launch, find, entry, *rank, size);
    } else if (entry["among"] == "cluster") {
      read_tensorflow(launch, rank->text);
    } else {
      const auto all = find_one(find, entry["among"]);
      if (!all) continue;
      find_among(launch, rank->text, split(all->text), all->name);
    }
    return launch;
  }
  return std::nullopt;
}

void for_each_rank_name(const std::function<void(const std::string& name)>& name) {
  for (const Json& entry : table()) {
    for (const Json& each : entry.at("rank")) name(each);
  }
}

std::uint16_t port_of(const std::string& meeting, std::string_view from) {
  const std::size_t colon = meeting.rfind(':');
  const std::string host = meeting.substr(0, std::min(colon, meeting.size()));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto lacks = [](std::string_view text, const char* letters) {
    return text.find_first_of(letters) == std::string_view::npos;
  };
  if (!bracketed && !lacks(host, ":") && lacks(host, " /[]")) {
    throw ConfigError("{}: '{}' is an address of IPv6; expected brackets, as in [::1]:29501", from,
                      meeting);
  }
  const std::string_view name =
      bracketed ? std::string_view(host).substr(1, host.size() - 2) : host;
  if (colon != std::string::npos && !name.empty() && lacks(name, " /[]")) {
    const auto port = parse_number<std::uint16_t>(std::string_view(meeting).substr(colon + 1));
    if (port && *port > 0) return *port;
  }
  throw ConfigError("{}: '{}', expected HOST:PORT, such as node1:29501", from, meeting);
}

}  // namespace penstock::cluster
