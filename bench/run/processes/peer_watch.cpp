// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/peer_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "bench/record/machine.h"

namespace penstock {
namespace {

constexpr int kLost = 5;  // the exit code of timeouts
/// Multiples of --timeout.
constexpr double kRendezvous = 2, kFirstStep = 10;

Nanoseconds of_seconds(double seconds) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(seconds));
}

/// A name that all ranks of a job share and no other job on this host has; empty: unknown.
std::string job_name(const cluster::FindVariable& find) {
  const char* const space = find("PMIX_NAMESPACE");
  const char* const key = find("OMPI_MCA_orte_precondition_transports");  // 128 random bits
  if (space == nullptr) return {};
  return fmt::format("{} {}", space, key == nullptr ? "" : key);
}

/// Flushes stdout, unless a slow reader would block this process.
void flush_output() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) == 1 && ftrylockfile(stdout) == 0) std::fflush(stdout);
}

std::string local_name(const std::string& job, std::int32_t rank) {
  return fmt::format("penstock {} rank {}", job, rank);
}

}  // namespace

liveness::RankDeadlines rank_deadlines(const RunConfig& config) {
  return {.rendezvous = of_seconds(kRendezvous * config.timeout),
          .silence = of_seconds(config.timeout),
          .goodbye = cluster::Processes::kGoodbye};
}

cluster::StepPatience step_patience(const RunConfig& config) {
  return {.first_step = of_seconds(kFirstStep * config.timeout),
          .step = of_seconds(config.timeout)};
}

PeerWatch::PeerWatch(const RunConfig& config, const cluster::Launch& launch,
                     const cluster::FindVariable& find)
    : deadlines_(rank_deadlines(config)), launch_(launch), progress_(config.num_warmup_batches) {
  const std::string job = job_name(find);
  if (launch.local_size != launch.size || job.empty()) return;
  std::vector<std::string> addresses;
  for (std::int32_t rank = 0; rank < launch.size; ++rank) {
    addresses.push_back(liveness::FrameListener::local_address(local_name(job, rank)));
  }
  start(liveness::FrameListener::local(local_name(job, launch.rank)), job, std::move(addresses));
}

void PeerWatch::start(liveness::FrameListener listener, std::string key,
                      std::vector<std::string> addresses) {
  liveness_ = std::make_unique<liveness::Liveness>(
      liveness::LivenessPlan{
          .rank = launch_.rank,
          .size = launch_.size,
          .place = {host_name(), getpid()},
          .key = std::move(key),
          .deadlines = deadlines_,
          .addresses = std::move(addresses),
          .say =
              [](const std::string& text) {
                std::fputs(fmt::format("penstock: {}\n", text).c_str(), stderr);
              },
          .tell =
              [this](std::span<const liveness::LostRank> lost) { tell(liveness::to_text(lost)); },
          .end =
              [] {
                flush_output();
                std::_Exit(kLost);
              }},
      std::move(listener), progress_);
}

void PeerWatch::follow(cluster::Processes& processes) {
  progress_.enter(cluster::RankPhase::preparing);
  processes.tell(progress_);
  processes.on_end([this](const std::string& why) { tell(why); });
  if (liveness_) return;
  liveness::FrameListener listener =
      liveness::FrameListener::tcp(processes.launch().local_size == launch_.size);
  const std::string key = launch_.rank == 0 ? liveness::random_key() : "";
  const std::vector<std::string> keys =
      gather(processes, key, deadlines_.rendezvous, "agreeing on a key");
  std::vector<std::string> addresses =
      gather(processes, listener.address(), deadlines_.rendezvous, "exchanging addresses");
  start(std::move(listener), keys.front(), std::move(addresses));
}

void PeerWatch::leave() {
  if (liveness_) liveness_->leave();
}

void PeerWatch::tell(std::string text) {
  const std::lock_guard lock(mutex_);
  try {
    const std::string where = keep_ ? keep_(text) : "";
    if (!where.empty()) {
      text +=
          fmt::format("; results of rank {} so far are in {}, marked partial", launch_.rank, where);
    }
  } catch (const std::exception& error) {
    text += fmt::format("; results so far could not be saved: {}", error.what());
  }
  std::fputs(fmt::format("penstock: {}\n", text).c_str(), stderr);
}

PeerWatch::Keeping::Keeping(PeerWatch* watch, Keep keep) : watch_(watch) {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->keep_ = std::move(keep);
}

PeerWatch::Keeping::~Keeping() {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->keep_ = nullptr;
}

std::vector<std::string> gather(cluster::Processes& processes, std::string_view text,
                                Nanoseconds patience, std::string_view what) {
  const cluster::RankWait wait(processes.progress(), std::chrono::steady_clock::now() + patience);
  return processes.all_gather(text, patience + kAheadOfWait, what);
}

}  // namespace penstock
