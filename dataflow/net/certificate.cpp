// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/certificate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::net {
namespace {

/// The limit for a file; enough for the certificates of some hundred clients.
constexpr std::uintmax_t kMostBytes = 1 << 20;

constexpr std::string_view kPublicHead =
    "# CURVE public certificate for ZeroMQ, written by penstock keygen.\n# Copy it to every peer "
    "that must know this key; check that it arrives unchanged.\n\n";
constexpr std::string_view kSecretHead =
    "# CURVE secret certificate for ZeroMQ, written by penstock keygen.\n# Keep it secret: anyone "
    "who reads it can impersonate its owner.\n\n";

[[noreturn]] void refuse(const std::filesystem::path& place, const std::string& why) {
  throw ConfigError("CURVE certificate {} {}", place.string(), why);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// The quoted text after `name =`, or nothing.
std::string_view value_of(std::string_view line, std::string_view name) {
  line = trimmed(line);
  if (!line.starts_with(name)) return {};
  line = trimmed(line.substr(name.size()));
  if (!line.starts_with('=')) return {};
  line = trimmed(line.substr(1));
  if (line.size() < 2 || line.front() != line.back()) return line;
  const bool quoted = line.front() == '"' || line.front() == '\'';
  return quoted ? line.substr(1, line.size() - 2) : line;
}

struct Keys {
  std::vector<std::string> public_keys, secret_keys;
};

Keys read_keys(const std::filesystem::path& file) {
  const InputFile opened(file);
  if (!opened) refuse(file, "cannot be read: " + opened.problem());
  if (opened.size() > kMostBytes) refuse(file, "has more than 1 MiB; expected lines with keys");
  std::istringstream stream(opened.text());
  Keys keys;
  for (std::string line; std::getline(stream, line);) {
    for (const std::string_view name : {"public-key", "secret-key"}) {
      const std::string_view value = value_of(line, name);
      if (value.empty()) continue;
      if (!is_curve_key(std::string(value))) {
        refuse(file,
               fmt::format(
                   "has a {} of {} characters, which is not a key; expected 40 characters of Z85",
                   name, value.size()));
      }
      (name == "public-key" ? keys.public_keys : keys.secret_keys).emplace_back(value);
    }
  }
  return keys;
}

std::vector<std::string> some_public_keys(const std::filesystem::path& file) {
  std::vector<std::string> keys = read_keys(file).public_keys;
  if (keys.empty()) {
    refuse(file,
           "has no public-key; expected a file such as penstock keygen and pyzmq's zmq.auth write");
  }
  return keys;
}

/// Returns true once the file is on disk with the whole text.
bool write_new(const std::filesystem::path& file, const std::string& text, ::mode_t mode) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (descriptor < 0) return false;
  const ssize_t written = ::write(descriptor, text.data(), text.size());
  const bool kept = ::fsync(descriptor) == 0;
  const bool closed = ::close(descriptor) == 0;
  if (written == static_cast<ssize_t>(text.size()) && kept && closed) return true;
  const int error = errno;
  ::unlink(file.c_str());
  errno = error;
  return false;
}

[[noreturn]] void refuse_writing(const std::filesystem::path& file) {
  if (errno == EEXIST) {
    refuse(file, "already exists and is not overwritten; give another --out or --name");
  }
  refuse(file, std::string("cannot be written: ") + std::strerror(errno));
}

}  // namespace

CertificateFiles write_certificate(const CurveKeys& keys, const std::filesystem::path& folder,
                                   const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse(folder, "cannot be written: " + error.message());
  const CertificateFiles files{folder / (name + ".key"), folder / (name + ".key_secret")};
  const std::string public_lines =
      fmt::format("metadata\ncurve\n    public-key = \"{}\"\n", keys.public_key);
  const std::string secret_line = fmt::format("    secret-key = \"{}\"\n", keys.secret_key);
  // Write the secret file first: the public one is useless without it.
  if (!write_new(files.secret_file, std::string(kSecretHead) + public_lines + secret_line, 0600)) {
    refuse_writing(files.secret_file);
  }
  if (!write_new(files.public_file, std::string(kPublicHead) + public_lines, 0644)) {
    const int cause = errno;
    ::unlink(files.secret_file.c_str());
    errno = cause;
    refuse_writing(files.public_file);
  }
  return files;
}

CurveKeys read_secret_certificate(const std::filesystem::path& file) {
  const Keys keys = read_keys(file);
  if (keys.secret_keys.size() != 1 || keys.public_keys.size() != 1) {
    refuse(file, fmt::format("has {} secret and {} public keys; expected one of each: give the "
                             "file whose name ends in _secret",
                             keys.secret_keys.size(), keys.public_keys.size()));
  }
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && (status.st_mode & S_IRWXO) != 0) {
    refuse(file, "can be read by every user of this machine; run chmod 600 " + file.string());
  }
  CurveKeys pair{keys.public_keys.front(), keys.secret_keys.front()};
  if (!are_pair(pair)) {
    refuse(file, "has a public and a secret key that do not match; make new ones");
  }
  return pair;
}

std::string read_certificate(const std::filesystem::path& file) {
  const std::vector<std::string> keys = some_public_keys(file);
  if (keys.size() > 1) {
    refuse(file, fmt::format("has {} public keys; expected one", keys.size()));
  }
  return keys.front();
}

std::vector<std::string> read_certificates(const std::filesystem::path& place) {
  std::error_code error;
  if (!std::filesystem::is_directory(place, error)) return some_public_keys(place);
  std::set<std::string> keys;
  for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || name.ends_with("_secret") || !entry.is_regular_file()) continue;
    const std::vector<std::string> more = some_public_keys(entry.path());
    keys.insert(more.begin(), more.end());
  }
  if (error) refuse(place, "cannot be read: " + error.message());
  if (keys.empty()) {
    refuse(place,
           "is a folder without certificates; copy the .key file of each accepted peer into it");
  }
  return {keys.begin(), keys.end()};
}

}  // namespace penstock::net
