# The user's commands: `make run`, `make run-cpu` and `make test`. CI runs `make test` and `make sanitize`. Each installs what is
# missing (Debian packages, as root), builds, and does what its name says. `make interop`, `make lint`: see below.
SHELL := /bin/bash
BUILD ?= build
CMAKE_FLAGS ?=
packages = $(shell sed '/^\#/d' $(1))
RUN_PACKAGES := $(call packages,cmake/debian-packages.txt)
TEST_PACKAGES := $(RUN_PACKAGES) $(call packages,cmake/debian-packages-test.txt)
SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

# $(call install,packages): those of them that are missing. What they bring of services is not started.
define install
@missing=$$(comm -23 <(printf '%s\n' $(1) | sort -u) \
  <(dpkg-query -W -f='$${db:Status-Abbrev}$${Package}\n' $(1) 2>/dev/null | sed -n 's/^ii //p' | sort -u)); \
if [ -n "$$missing" ]; then \
  echo "installing:" $$missing; \
  policy=/usr/sbin/policy-rc.d; \
  if [ ! -e $$policy ] && { printf '#!/bin/sh\nexit 101\n' > $$policy && chmod +x $$policy; } 2> /dev/null; then \
    trap "rm -f $$policy" EXIT; \
  fi; \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $$missing > /dev/null; \
fi
endef

.PHONY: run run-cpu test sanitize interop lint configure clean

run: configure
	cmake --build $(BUILD) --target penstock
	$(BUILD)/penstock sweep --out out --device emulated --rest 30s
	@if [ -n "$$(ls /proc/driver/nvidia/gpus 2>/dev/null)" ]; then \
	  printf '\n%s\n\n' "The same feeders before a GPU of this machine: ResNet-50 v1.5 in fp16." && \
	  $(BUILD)/penstock sweep --out out/gpu --device gpu --num-gpus 1 --model resnet50_v1.5 --precision fp16 \
	    --batch-size 256 --time-budget 5min; \
	fi

# A trainer that computes on the cores that also decode: its model is small enough that decoding costs it something.
run-cpu: configure
	cmake --build $(BUILD) --target penstock
	$(BUILD)/penstock sweep --out out/cpu --fake-location gpu,queue,queue:engine=libjpeg --device cpu --num-gpus 1 \
	  --model trivial --batch-size 32 --rest 30s

# Four places, of which tests that compute take two. A test that fails is run once more, and both
# outcomes are printed: hundreds of them start processes under launchers that fail by themselves now
# and then.
# No test may depend on a GPU of this machine: --device auto would take it.
CTEST := CUDA_VISIBLE_DEVICES= ctest --output-on-failure --no-tests=error --repeat until-pass:2 -j 4

# A release build and all tests.
test:
	$(call install,$(TEST_PACKAGES))
	$(MAKE) --no-print-directory configure
	@clang-format-14 --dry-run --Werror $(SOURCES)
	cmake --build $(BUILD)
	cd $(BUILD) && $(CTEST)

# The tests in which memory and threads are at stake, with the address and undefined-behaviour sanitizers, then with the
# thread sanitizer. At the end it prints which tests each sanitizer left out, and why.
sanitize:
	$(call install,$(TEST_PACKAGES))
	for preset in asan tsan; do \
	  cmake --preset $$preset > /dev/null && cmake --build --preset $$preset && \
	  $(CTEST) --preset $$preset || exit 1; \
	done
	@printf '\n%s\n' "Left out (sanitizers: tests: reason):" && sort -u build-asan/tests/left_out.txt build-tsan/tests/left_out.txt

# The reference systems' own producers, from PyPI, against ours. Needs the network, unlike `make test`.
interop: configure
	cmake --build $(BUILD)
	python3 -m venv $(BUILD)/interop || { echo "install python3-venv"; exit 1; }
	$(BUILD)/interop/bin/pip install --quiet -r tests/interop/requirements.txt
	cd $(BUILD) && ctest --output-on-failure --no-tests=error -L interop

# clang-tidy over the sources of the program. Takes minutes.
lint: configure
	$(call install,clang-tidy-14)
	cmake --build $(BUILD) --target penstock
	git ls-files '*.cpp' | grep -E '^(dataflow|feeders|producer|trainer|bench)/' | grep -vE '/(micro|peers)/' \
	  | xargs -P 2 -n 4 clang-tidy-14 -p $(BUILD) --quiet

configure:
	$(call install,$(RUN_PACKAGES))
	cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) $(if $(CI),-DPENSTOCK_WERROR=ON)

clean:
	rm -rf $(BUILD) build-*
