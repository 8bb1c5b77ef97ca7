# The two commands: `make run` and `make test`. Each installs what is missing (Debian packages, as
# root), builds, and does what its name says.
BUILD ?= build
PACKAGES := $(shell sed '/^\#/d' cmake/debian-packages.txt)
CMAKE_FLAGS ?=

.PHONY: run test interop build deps clean

run: build
	$(BUILD)/penstock sweep --out out

test: build
	cd $(BUILD) && ctest --output-on-failure --no-tests=error -j 2

# The reference systems' own producers, from PyPI, against ours. Needs the network, unlike `make test`.
interop: build
	python3 -m venv $(BUILD)/interop || { echo "install python3-venv"; exit 1; }
	$(BUILD)/interop/bin/pip install --quiet -r tests/interop/requirements.txt
	cd $(BUILD) && ctest --output-on-failure --no-tests=error -L interop

build: deps
	cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) $(if $(CI),-DPENSTOCK_WERROR=ON)
	cmake --build $(BUILD)

deps:
	@missing=$$(dpkg-query -W -f='$${db:Status-Abbrev}$${Package}\n' $(PACKAGES) 2>/dev/null \
	  | sed -n 's/^ii //p' | sort -u > .have.$$$$; \
	  printf '%s\n' $(PACKAGES) | sort -u | comm -23 - .have.$$$$; rm -f .have.$$$$); \
	if [ -n "$$missing" ]; then \
	  echo "installing:" $$missing; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends $$missing > /dev/null; \
	fi

clean:
	rm -rf $(BUILD)
