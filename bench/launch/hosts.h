// SPDX-License-Identifier: Apache-2.0
// The machines that a launcher starts ranks on, as people write them down: mpirun's list and host
// file, and the node file of tfperftest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct Host {
  std::string name;        ///< by which ssh, or another agent, reaches it
  std::string address;     ///< by which the other machines reach it; empty: `name`
  std::int32_t slots = 0;  ///< ranks that it takes; 0: not said

  bool operator==(const Host&) const = default;
};

/// "a:2,b": names and slots; without a number 1, as mpirun counts. Names that come again add up.
/// Throws ConfigError, as all of these do.
std::vector<Host> parse_host_list(std::string_view text);

/// A file with a machine a line; # begins a comment. Two words are tfperftest's node file: the name
/// for the other machines, and the ssh alias. A name, alone or with slots=N, is mpirun's host file.
/// One file is of one kind.
std::vector<Host> read_host_file(const std::filesystem::path& path);
/// The same for its text; `name` is how messages call it.
std::vector<Host> parse_host_file(std::string_view text, std::string_view name);

/// Where `ranks` ranks go: the first machine is filled first, each with at most its slots, or
/// `per_host` where it says none. The result has no machine without ranks, and says their numbers
/// as slots. Throws ConfigError where they do not fit.
std::vector<Host> place_ranks(std::span<const Host> hosts, std::int32_t ranks,
                              std::int32_t per_host);

/// "a:2,b:1", as mpirun's --host takes it.
std::string to_text(std::span<const Host> hosts);

/// Throws ConfigError that names all machines that nobody knows: neither the resolver, nor the
/// configuration of `agent`, an ssh command. Another agent knows names of its own, which pass. May
/// wait for the resolver's own time-out.
void expect_known(std::span<const Host> hosts, const std::string& agent);

}  // namespace penstock
