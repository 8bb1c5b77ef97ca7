# SPDX-License-Identifier: Apache-2.0
"""The hosts that hosts.sh has set up, for tests that it runs."""
import os
import pathlib
import subprocess

SCRIPT = str(pathlib.Path(__file__).resolve().parent / "hosts.sh")


def names():
    return os.environ["PENSTOCK_HOSTS"].split()


def on(host, command):
    """The words that run `command` on `host`."""
    return [SCRIPT, "on", host, *[str(word) for word in command]]


def address(host):
    shown = subprocess.run(on(host, ["ip", "-4", "-o", "addr", "show", "eth0"]), capture_output=True, text=True, timeout=10,
                           check=True).stdout
    return shown.split()[3].split("/")[0]


def set_link(host, state):
    """Takes the link of `host` "up" or "down"."""
    subprocess.run(["ip", "link", "set", os.environ["PENSTOCK_HOST_LINK"] + host, state], timeout=10, check=True)
