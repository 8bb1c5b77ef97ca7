// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/hello.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

namespace penstock::producer {
namespace {

constexpr std::size_t kMaxName = 255;

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, kMaxName)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result + '"';
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::string hello_text(std::string_view name) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::string text = "{\"name\": " + quoted(name) + ", \"host\": " + quoted(host_name()) +
                     ", \"pid\": " + std::to_string(getpid());
  if (!boot.empty()) text += ", \"boot\": " + quoted(boot);
  return text + "}";
}

std::string program_name() { return program_invocation_short_name; }

}  // namespace penstock::producer
