# The user's commands: `make demo`, `make run`, `make run-cpu` and `make test`. CI runs `make test` and `make sanitize`. Each target builds what
# it needs first. Root installs missing Debian packages; other users get a message that names them. The other targets: see below.
SHELL := /bin/bash
BUILD ?= build
CMAKE_FLAGS ?=
packages = $(shell sed '/^\#/d' $(1))
RUN_PACKAGES := $(call packages,cmake/debian-packages.txt)
DEB_PACKAGES := $(RUN_PACKAGES) $(call packages,cmake/debian-packages-deb.txt)
# The sources have the format of clang-format 14, which Debian 13 lacks.
FORMATTER := $(if $(shell grep '^VERSION_ID="12"' /etc/os-release),clang-format-14)
TEST_PACKAGES := $(DEB_PACKAGES) $(call packages,cmake/debian-packages-test.txt) $(FORMATTER)
SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

# $(call install,packages): installs those packages that are missing, if the user is root.
install = @cmake/install_packages.sh $(1)

.PHONY: demo run run-cpu test sanitize fuzz coverage deb wheel package-test interop lint configure clean

# The way from a clone to the first answer: builds the program alone, and finds the planted fault of a small loader.
demo: configure
	cmake --build $(BUILD) --target penstock
	$(BUILD)/penstock demo

# Builds what `cmake --install $(BUILD)` installs. The GPU library is built only if this machine has a GPU. Two emulated devices
# take more images than a few cores decode.
run: configure
	cmake --build $(BUILD) --target penstock penstock_producer penstock_micro
	$(BUILD)/penstock sweep --out out --device emulated --num-gpus 2 --rest 30s
	@if [ -n "$$(ls /proc/driver/nvidia/gpus 2>/dev/null)" ]; then \
	  printf '\n%s\n\n' "The same feeders before a GPU of this machine: ResNet-50 v1.5 in fp16." && \
	  $(BUILD)/penstock sweep --out out/gpu --device gpu --num-gpus 1 --model resnet50_v1.5 --precision fp16 \
	    --batch-size 256 --time-budget 5min; \
	fi

# The trainer computes on the same cores that decode. Its model is small, so decoding has a measurable cost.
run-cpu: configure
	cmake --build $(BUILD) --target penstock
	$(BUILD)/penstock sweep --out out/cpu --fake-location gpu,queue,queue:engine=libjpeg --device cpu --num-gpus 1 \
	  --model trivial --batch-size 32 --rest 30s

# ctest runs four jobs at once; a test that computes counts as two.
# No test may depend on a GPU of this machine, and --device auto would choose it.
CTEST := CUDA_VISIBLE_DEVICES= ctest --output-on-failure -j 4

# $(call ctest,options): runs every test once, then those with the label `launcher`. These have a second try, because the
# launchers that they start fail now and then (tests/README.md). Both parts run, even if the first one fails.
define ctest
{ passed=true; $(CTEST) $(1) --no-tests=error -LE '^launcher$$' || passed=false; \
  $(CTEST) $(1) --no-tests=ignore -L '^launcher$$' --repeat until-pass:2 || passed=false; $$passed; }
endef

# A release build and all tests.
test:
	$(call install,$(TEST_PACKAGES))
	$(MAKE) --no-print-directory configure
	$(if $(FORMATTER),@$(FORMATTER) --dry-run --Werror $(SOURCES))
	cmake --build $(BUILD)
	cd $(BUILD) && $(call ctest)

# Runs the tests of memory and threads with the address and undefined-behaviour sanitizers, then with the thread sanitizer.
# At the end it prints which tests each sanitizer left out, and why.
sanitize:
	$(call install,$(TEST_PACKAGES))
	for preset in asan tsan; do \
	  cmake --preset $$preset > /dev/null && cmake --build --preset $$preset && \
	  $(call ctest,--preset $$preset) || exit 1; \
	done
	@printf '\n%s\n' "Left out (sanitizers: tests: reason):" && sort -u build-asan/tests/left_out.txt build-tsan/tests/left_out.txt

# build/penstock_VERSION_ARCHITECTURE.deb: everything that `cmake --install` installs, for the Debian of this machine.
deb:
	$(call install,$(DEB_PACKAGES))
	$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --target penstock_installed
	rm -f $(BUILD)/*.deb
	cd $(BUILD) && cpack

# build/penstock_bench-VERSION-....whl: the program without MPI, its shared libraries, and the Python package. It packs what
# `make run` has built, and only links the program again. Needs the network the first time.
wheel: configure
	$(call install,python3-venv)
	cmake --build $(BUILD) --target penstock_portable penstock_producer
	python/make_wheel.sh $(BUILD) $(BUILD)

# Installs into a prefix, and tests the package and the Dockerfile in bare folders of Debian 12 and 13. Needs root and the network.
package-test: deb
	$(call install,debootstrap)
	cd $(BUILD) && ctest --output-on-failure --no-tests=error -L package
	python3 tests/package/bare_debian_test.py $(CURDIR) $(BUILD)

# Runs each fuzzer for a fixed number of seconds, starting from earlier findings. One line for each; fails if an input fails.
FUZZ_SECONDS ?= 60
fuzz:
	$(call install,$(TEST_PACKAGES) clang-14 libclang-rt-14-dev)
	cmake --preset fuzz > /dev/null && cmake --build --preset fuzz
	@printf '%s\n' $(or $(FUZZ_TARGETS),$$(ls build-fuzz/fuzz)) \
	  | xargs -P $$(nproc) -n 1 tests/fuzz/run.sh $(CURDIR)/build-fuzz $(FUZZ_SECONDS)

# Line coverage of each folder by the tests. The first run takes as long as `make test` from an empty build folder.
coverage:
	$(call install,$(TEST_PACKAGES) gcovr)
	cmake --preset coverage > /dev/null && cmake --build --preset coverage
	find build-coverage -name '*.gcda' -delete
	cd build-coverage && $(CTEST); status=$$?; \
	  python3 ../tests/coverage.py . > coverage.txt && cat coverage.txt && exit $$status

# Tests the reference systems' producers, from PyPI, against Penstock. Needs the network, unlike `make test`.
interop: configure
	$(call install,python3-venv)
	cmake --build $(BUILD)
	python3 -m venv $(BUILD)/interop
	$(BUILD)/interop/bin/pip install --quiet -r tests/interop/requirements.txt
	$(BUILD)/interop/bin/pip install --quiet --upgrade --no-deps nvidia-cudnn-cu13
	cd $(BUILD) && ctest --output-on-failure --no-tests=error -L interop

# clang-tidy over the sources of the program. Takes minutes.
lint: configure
	$(call install,clang-tidy-14)
	cmake --build $(BUILD) --target penstock
	git ls-files '*.cpp' | grep -E '^(dataflow|feeders|trainer|bench)/' | grep -vE '/(micro|peers)/' \
	  | xargs -P 2 -n 4 clang-tidy-14 -p $(BUILD) --quiet

configure:
	$(call install,$(RUN_PACKAGES))
	@cmake/nvjpeg_from_pypi.sh $(BUILD)
	cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) $(if $(CI),-DPENSTOCK_WERROR=ON)

clean:
	rm -rf $(BUILD) build-*
