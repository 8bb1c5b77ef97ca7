// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/launch/hosts.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <memory>
#include <sstream>

#include "bench/config/flags.h"
#include "bench/record/machine.h"
#include "bench/run/processes/child_process.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/options.h"

namespace penstock::scaling {
namespace {

constexpr std::uintmax_t kMostBytes = 1 << 20;

/// Checks that a name can stand on a command line: neither an option nor a list.
void expect_name(const std::string& name, std::string_view where) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-@").find(c) != std::string_view::npos;
  };
  if (!name.empty() && name.front() != '-' && std::ranges::all_of(name, fits)) return;
  throw ConfigError(
      "{}: '{}' is not the name of a machine; expected letters, digits, dots, dashes and "
      "underscores, such as node1",
      where, name);
}

std::int32_t parse_slots(std::string_view text, std::string_view where) {
  if (text.find(':') != std::string_view::npos) {  // NAME:SLOTS:ADDRESS, as KungFu writes it
    throw ConfigError(
        "{}: '{}' is not a number of slots; expected NAME:SLOTS, such as node1:2, "
        "without a second address",
        where, text);
  }
  const std::int64_t slots = parse_integer(text, where);
  if (slots >= 1 && slots <= kMostSlots) return static_cast<std::int32_t>(slots);
  throw ConfigError("{}: {} slots; expected a whole number from 1 to {}", where, text, kMostSlots);
}

/// Keeps the sum of all slots within kMostSlots, so that every sum of them fits its type.
void add(std::vector<Host>& hosts, Host host, std::string_view where) {
  std::int64_t slots = std::max(host.slots, 1);
  for (const Host& other : hosts) slots += std::max(other.slots, 1);
  if (slots > kMostSlots) {
    throw ConfigError("{}: the machines have {} slots up to here; expected at most {} in all",
                      where, slots, kMostSlots);
  }
  const auto same = std::ranges::find(hosts, host.name, &Host::name);
  if (same == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    same->slots += host.slots;
  }
}

/// A line of mpirun's host file. One run ignores options except slots.
Host mpirun_line(const std::vector<std::string>& words, const std::string& where) {
  Host host{.name = words.front(), .address = {}, .slots = 0};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    if (equals == std::string::npos ||
        (key != "slots" && key != "max_slots" && key != "max-slots")) {
      throw ConfigError("{}: '{}' is not known; expected NAME slots=N, or a name and an ssh alias",
                        where, words[i]);
    }
    const std::int32_t slots = parse_slots(words[i].substr(equals + 1), where);
    if (key == "slots") host.slots = slots;
  }
  host.slots = std::max(host.slots, 1);
  return host;
}

/// A system without /etc/hosts cannot look up localhost, but launchers know it.
bool resolves(const std::string& name) {
  if (name == "localhost") return true;
  addrinfo* found = nullptr;
  const bool known = getaddrinfo(name.c_str(), nullptr, nullptr, &found) == 0;
  if (known) freeaddrinfo(found);
  return known;
}

bool is_ssh(const std::string& agent) {
  const std::vector<std::string> words = split_words(agent);
  return !words.empty() && std::filesystem::path(words.front()).filename() == "ssh";
}

/// Resolves a name by ssh's configuration; empty if ssh cannot be asked.
std::string name_by_ssh(const std::string& agent, const std::string& name) {
  std::vector<std::string> words = split_words(agent);
  words.insert(words.end(), {"-G", name});
  try {
    ChildProcess child({.arguments = words, .timeout = std::chrono::seconds(10)});
    std::istringstream lines(child.wait().output);
    for (std::string key, value; lines >> key && std::getline(lines >> std::ws, value);) {
      if (key == "hostname") return value;
    }
  } catch (const Error&) {  // no ssh here: use names without it
  }
  return {};
}

/// An agent other than ssh may know more names; it is asked when machines are reached.
bool is_known(const std::string& name, const std::string& agent) {
  if (resolves(name) || !is_ssh(agent)) return true;
  const std::string by_ssh = name_by_ssh(agent, name);
  return !by_ssh.empty() && by_ssh != name && resolves(by_ssh);
}

constexpr Nanoseconds kPatience = std::chrono::seconds(30);

bool same_address(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) {
    const auto& x = reinterpret_cast<const sockaddr_in&>(a);
    const auto& y = reinterpret_cast<const sockaddr_in&>(b);
    return x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  if (a.sa_family != AF_INET6) return false;
  const auto& x = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& y = reinterpret_cast<const sockaddr_in6&>(b);
  return std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

}  // namespace

std::vector<Host> parse_host_list(std::string_view text) {
  std::vector<Host> hosts;
  std::istringstream pieces{std::string(text)};
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const std::size_t colon = piece.find(':');
    const std::string name = piece.substr(0, colon);
    expect_name(name, "--hosts");
    const std::int32_t slots =
        colon == std::string::npos ? 1 : parse_slots(piece.substr(colon + 1), "--hosts");
    add(hosts, {.name = name, .address = {}, .slots = slots}, "--hosts");
  }
  if (hosts.empty()) {
    throw ConfigError("--hosts names no machine; expected a list such as node1:2,node2:2");
  }
  return hosts;
}

std::vector<Host> parse_host_file(std::string_view text, std::string_view name) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(text)};
  bool nodes = false;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = split_words(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    const std::string where = fmt::format("{} line {}", name, number);
    expect_name(words.front(), where);
    const bool is_node = words.size() == 2 && words[1].find('=') == std::string::npos;
    if (!hosts.empty() && is_node != nodes) {
      throw ConfigError(
          "{}: '{}' is not of the kind of the lines before it; expected {} in every line", where,
          line, nodes ? "a name and an ssh alias" : "a name and slots=N");
    }
    nodes = is_node;
    if (is_node) {
      expect_name(words[1], where);
      add(hosts, {.name = words[1], .address = words[0], .slots = 0}, where);
    } else {
      add(hosts, mpirun_line(words, where), where);
    }
  }
  if (!hosts.empty()) return hosts;
  throw ConfigError(
      "{} names no machine; expected a line for each: NAME slots=N, or a name and an ssh alias",
      name);
}

std::vector<Host> read_host_file(const std::filesystem::path& path) {
  try {
    return parse_host_file(InputFile(path).text(kMostBytes), path.native());
  } catch (const DataError& error) {
    throw ConfigError("cannot read the host file '{}': {}; name a file with a machine a line",
                      path.native(), error.what());
  }
}

std::vector<Host> place_ranks(std::span<const Host> hosts, std::int32_t ranks,
                              std::int32_t per_host) {
  std::vector<Host> placed;
  std::int64_t left = ranks, room = 0;
  for (const Host& host : hosts) {
    const std::int32_t slots = host.slots > 0 ? host.slots : per_host;
    room += slots;
    const std::int32_t here = static_cast<std::int32_t>(std::min<std::int64_t>(left, slots));
    if (here == 0) continue;
    placed.push_back(host);
    placed.back().slots = here;
    left -= here;
  }
  if (left == 0) return placed;
  throw ConfigError(
      "{} ranks do not fit: {} machine{} {} {} of them; ask for fewer, or give machines more slots",
      ranks, hosts.size(), hosts.size() == 1 ? "" : "s", hosts.size() == 1 ? "takes" : "take",
      room);
}

std::string to_text(std::span<const Host> hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  }
  return text;
}

void expect_known(std::span<const Host> hosts, const std::string& agent) {
  std::vector<std::string> unknown;
  for (const Host& host : hosts) {
    if (!is_known(host.name, agent)) unknown.push_back(host.name);
    if (!host.address.empty() && !resolves(host.address)) unknown.push_back(host.address);
  }
  if (unknown.empty()) return;
  throw ConfigError(
      "unknown machine{} {}: not found by the resolver (DNS, /etc/hosts), nor in the configuration "
      "of ssh; correct the names of --hosts, or set with --ssh how to reach them",
      unknown.size() == 1 ? "" : "s", join(unknown));
}

bool is_local(const std::string& name) {
  if (name == "localhost") return true;  // also without /etc/hosts
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  ifaddrs* listed = nullptr;
  if (getifaddrs(&listed) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(listed, &freeifaddrs);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    for (const ifaddrs* own = listed; own != nullptr; own = own->ifa_next) {
      if (own->ifa_addr != nullptr && same_address(*own->ifa_addr, *address->ai_addr)) return true;
    }
  }
  return false;
}

std::vector<std::string> names_of_machines(std::span<const Host> hosts, const std::string& agent,
                                           const std::stop_token& stop) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (is_local(host.name)) {
      names.push_back(host_name());
      continue;
    }
    std::vector<std::string> words = split_words(agent);
    words.insert(words.end(), {host.name, "hostname"});
    ChildProcess child({.arguments = words, .timeout = kPatience});
    const ChildExit& exit = child.wait(stop);
    const std::vector<std::string> said = split_words(exit.output);
    if (exit.cause != ChildExit::Cause::ended || exit.code != 0 || said.empty()) {
      throw Unavailable(
          "cannot reach {} of --hosts: `{} {} hostname` {}; it must work without asking for input",
          host.name, agent, host.name, exit.describe());
    }
    names.push_back(said.front());
  }
  return names;
}

SharedMachine shared_machine(std::vector<std::string> names) {
  std::ranges::sort(names);
  const auto machines = std::unique(names.begin(), names.end()) - names.begin();
  if (machines == std::ssize(names)) return SharedMachine::none;
  return machines == 1 ? SharedMachine::all : SharedMachine::some;
}

}  // namespace penstock::scaling
