// SPDX-License-Identifier: Apache-2.0
// Parses lists of machines for a launcher: mpirun's host list and host file, and tfperftest's node
// file. Checks that machines are reachable before ranks start on them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::scaling {

constexpr std::int64_t kMostSlots = 65536;  ///< of all machines together

struct Host {
  std::string name;        ///< name for ssh or another agent
  std::string address;     ///< address for the other machines; empty: `name`
  std::int32_t slots = 0;  ///< maximum number of ranks; 0: not stated

  bool operator==(const Host&) const = default;
};

/// Parses "a:2,b": names and slots; without a number 1, as in mpirun. Repeated names add up. All
/// parsers throw ConfigError.
std::vector<Host> parse_host_list(std::string_view text);

/// Reads a file with one machine per line; # begins a comment. Two words are a line of tfperftest's
/// node file: the name for other machines, and the ssh alias. A name, alone or with slots=N, is a
/// line of mpirun's host file. A file must not mix the two.
std::vector<Host> read_host_file(const std::filesystem::path& path);
/// Parses the text of such a file; messages use `name` for the file.
std::vector<Host> parse_host_file(std::string_view text, std::string_view name);

/// Places `ranks` ranks: it fills the first machine first, up to its slots, or up to `per_host`
/// without stated slots. The result omits machines without ranks; its slots are the numbers of
/// ranks. Throws ConfigError if the ranks do not fit.
std::vector<Host> place_ranks(std::span<const Host> hosts, std::int32_t ranks,
                              std::int32_t per_host);

/// Formats "a:2,b:1" for mpirun's --host.
std::string to_text(std::span<const Host> hosts);

/// Throws ConfigError with all unknown machines: names that neither the resolver nor the
/// configuration of `agent`, an ssh command, knows. Names for another kind of agent pass without a
/// check. May block until the resolver's timeout.
void expect_known(std::span<const Host> hosts, const std::string& agent);

/// Is it a name of this machine, on which mpirun starts ranks without an agent?
bool is_local(const std::string& name);

/// Returns the name that each machine reports, asked through `agent`, one after the other. This
/// machine is not asked. If a machine does not answer within half a minute, throws Unavailable with
/// its name and the agent's output.
std::vector<std::string> names_of_machines(std::span<const Host> hosts, const std::string& agent,
                                           const std::stop_token& stop);

/// How many of a launch's hosts are one machine under several names.
enum class SharedMachine : std::uint8_t { none, some, all };
/// `names`: of the machines, as names_of_machines() says.
SharedMachine shared_machine(std::vector<std::string> names);

}  // namespace penstock::scaling
