// SPDX-License-Identifier: Apache-2.0
#include "bench/run/step_reporter.h"

namespace penstock {

StepReporter::StepReporter(const RunConfig& config, RunListener& listener)
    : config_(config), listener_(listener), thread_([this] { run(); }) {}

StepLog& StepReporter::begin_leg(std::size_t first, std::size_t steps, std::size_t ranks,
                                 std::size_t extended_to) {
  auto part = std::make_unique<Part>();
  part->extended_to = extended_to;
  part->first = first;
  part->log = std::make_unique<StepLog>(steps, ranks);
  return begin(std::move(part));
}

StepLog& StepReporter::begin_evaluation(std::int64_t training_step, std::size_t steps) {
  auto part = std::make_unique<Part>();
  part->log = std::make_unique<StepLog>(steps, 1);
  part->evaluates = true;
  part->training_step = training_step;
  return begin(std::move(part));
}

void StepReporter::end_evaluation(const EvaluationReport& report) {
  Part* part = nullptr;
  {
    const std::lock_guard lock(mutex_);
    part = parts_.back().get();
  }
  part->evaluation = report;
  part->log->close();
}

StepLog& StepReporter::begin(std::unique_ptr<Part> part) {
  StepLog& log = *part->log;
  const std::lock_guard lock(mutex_);
  parts_.push_back(std::move(part));
  changed_.notify_all();
  return log;
}

void StepReporter::close() {
  {
    const std::lock_guard lock(mutex_);
    complete_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void StepReporter::run() {
  for (std::size_t index = 0;; ++index) {
    const Part* part = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return parts_.size() > index || complete_; });
      if (parts_.size() <= index) return;
      part = parts_[index].get();
    }
    part->evaluates ? tell_evaluation(*part) : tell_training(*part);
  }
}

void StepReporter::tell_training(const Part& part) {
  if (part.first == 0) {
    if (part.extended_to > 0)
      listener_.window_extended(static_cast<std::int64_t>(part.extended_to));
    listener_.window_begins();
  }
  StepLog::Step step;
  Nanoseconds before{};
  for (std::size_t count = 0; part.log->wait(count, step); ++count) {
    StepReport report = report_of(step, part.log->ranks(), config_);
    report.index = part.first + count;
    report.seconds = to_seconds(step.completion - before);
    listener_.step(report);
    before = step.completion;
  }
}

void StepReporter::tell_evaluation(const Part& part) {
  listener_.evaluation_begins(part.training_step);
  StepLog::Step step;
  Nanoseconds before{};
  for (std::size_t count = 0; part.log->wait(count, step); ++count) {
    listener_.evaluation_step(count, static_cast<double>(step.images),
                              to_seconds(step.completion - before));
    before = step.completion;
  }
  if (part.evaluation.complete) listener_.evaluated(part.evaluation);
}

StepReport report_of(const StepLog::Step& step, std::size_t ranks, const RunConfig& config) {
  const double images = std::max(1.0, static_cast<double>(step.images));
  const double decay = config.loss_type_to_report == "total_loss" ? step.l2_loss : 0;
  return {.loss = step.loss_sum / static_cast<double>(ranks) + decay,
          .top1 = static_cast<double>(step.top1) / images,
          .top5 = static_cast<double>(step.top5) / images,
          .images = static_cast<double>(step.images)};
}

}  // namespace penstock
