// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/framed_texts.h"

#include <fmt/format.h>

#include <climits>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

using nlohmann::json;

constexpr std::size_t kMostCharacters = 100;
/// Longest name of an abstract Unix socket, with its '@'.
constexpr std::size_t kMostPoolName = 107;
/// Longest reason of a refusal: the text must fit even if each character is escaped.
constexpr std::size_t kMostWhy = 2000;

[[noreturn]] void refuse(std::string_view kind, const std::string& what) {
  throw DataError("framed message: the text of a {} {}", kind, what);
}

bool is_printable(char c) noexcept { return c >= ' ' && c <= '~'; }

std::string printable(std::string_view text, std::size_t most) {
  std::string result(text.substr(0, most));
  for (char& c : result) c = is_printable(c) ? c : '?';
  return result;
}

json parse_object(const FramedMessage& message, FramedKind kind) {
  const std::string_view name = to_string(kind);
  if (message.header.kind != kind || message.payload.size() != 1 ||
      message.payload[0].size() > kMaxFramedText) {
    refuse(name, fmt::format("is missing, or longer than {} bytes", kMaxFramedText));
  }
  const auto* text = reinterpret_cast<const char*>(message.payload[0].data());
  json object = json::parse(text, text + message.payload[0].size(), nullptr, false);
  if (!object.is_object()) refuse(name, "is no JSON object");
  return object;
}

/// Empty: the key is missing.
std::string text_of(const json& object, const char* key, std::string_view kind,
                    std::size_t most = kMostCharacters) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (!found->is_string()) refuse(kind, fmt::format("has a {} that is no string", key));
  return printable(found->get_ref<const std::string&>(), most);
}

std::int32_t count_of(const json& object, const char* key, std::string_view kind) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() ||
      found->get<std::uint64_t>() > INT_MAX) {
    refuse(kind, fmt::format("has no {} that is a whole number below 2^31", key));
  }
  return static_cast<std::int32_t>(found->get<std::uint64_t>());
}

void put(json& object, const char* key, std::string_view text, std::size_t most = kMostCharacters) {
  if (!text.empty()) object[key] = printable(text, most);
}

}  // namespace

FramedHello parse_framed_hello(const FramedMessage& message) {
  const json object = parse_object(message, FramedKind::hello);
  const std::string_view kind = "hello";
  FramedHello hello;
  hello.name = text_of(object, "name", kind);
  hello.host = text_of(object, "host", kind);
  hello.boot = text_of(object, "boot", kind);
  if (object.contains("pid")) hello.pid = count_of(object, "pid", kind);
  const auto pool = object.find("pool");
  if (pool == object.end()) return hello;
  hello.pool = text_of(object, "pool", kind, SIZE_MAX);
  const bool named = hello.pool == pool->get_ref<const std::string&>() && hello.pool.size() > 1 &&
                     hello.pool.size() <= kMostPoolName && hello.pool[0] == '@';
  if (!named) {
    refuse(kind, fmt::format("names the pool '{}'; expected @ and at most 106 printable characters",
                             hello.pool.substr(0, kMostPoolName)));
  }
  return hello;
}

FramedWelcome parse_framed_welcome(const FramedMessage& message) {
  const json object = parse_object(message, FramedKind::welcome);
  const std::string_view kind = "welcome";
  return {.images = count_of(object, "images", kind),
          .height = count_of(object, "height", kind),
          .width = count_of(object, "width", kind),
          .channels = count_of(object, "channels", kind),
          .classes = count_of(object, "classes", kind),
          .boot = text_of(object, "boot", kind)};
}

std::string parse_framed_refusal(const FramedMessage& message) {
  return text_of(parse_object(message, FramedKind::refusal), "why", "refusal", kMaxFramedText);
}

std::string write_framed_hello(const FramedHello& hello) {
  json object = json::object();
  put(object, "name", hello.name);
  put(object, "host", hello.host);
  if (hello.pid > 0) object["pid"] = hello.pid;
  put(object, "boot", hello.boot);
  put(object, "pool", hello.pool, kMostPoolName);
  return object.dump();
}

std::string write_framed_welcome(const FramedWelcome& welcome) {
  json object = {{"images", welcome.images},
                 {"height", welcome.height},
                 {"width", welcome.width},
                 {"channels", welcome.channels},
                 {"classes", welcome.classes}};
  put(object, "boot", welcome.boot);
  return object.dump();
}

std::string write_framed_refusal(std::string_view why) {
  return json{{"why", printable(why, kMostWhy)}}.dump();
}

std::string describe(const FramedHello& hello, std::uint64_t producer) {
  std::string text = hello.name.empty() ? fmt::format("producer {:016x}", producer) : hello.name;
  if (!hello.host.empty()) text += " on " + hello.host;
  if (hello.pid > 0) text += fmt::format(", pid {}", hello.pid);
  return text;
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace penstock::remote
