#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the Debian package into a bare Debian, and runs the Dockerfile's steps and `make run` in bare Debians of both
releases; all programs measure.

Usage: bare_debian_test.py SOURCE_DIRECTORY BUILD_DIRECTORY

A bare Debian is a folder that debootstrap fills from this machine's mirror. It is kept in BUILD_DIRECTORY/package-test and
copied for each use. Commands run in it with chroot. The Dockerfile's cache mounts are this machine's ccache. Needs root and
the network; without root it exits with 77 and says why.
"""
import fnmatch
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time

RELEASES = {"12": "bookworm", "13": "trixie"}
LIMIT_S = 3600
MEASURES = [["--version"],
            ["run", "--device", "emulated", "--fake-location", "cpu", "--num-batches", "20", "--batch-size", "8"],
            ["dataset", "make", "--data-dir", "/tmp/images", "--images", "24", "--val-images", "3", "--classes", "3"],
            ["run", "--device", "emulated", "--fake-location", "queue", "--data-dir", "/tmp/images/train", "--batch-size", "8",
             "--num-batches", "20"]]


def call(*command, **options):
    subprocess.run([str(word) for word in command], check=True, timeout=LIMIT_S, **options)


def output(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True, timeout=LIMIT_S).stdout.strip()


def mirror():
    sites = output("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian",
                   "Label: Debian").split()
    return sites[0] if sites else "http://deb.debian.org/debian"


class BareDebian:
    """A folder with Debian's required packages, the same set as in Docker's images."""

    def __init__(self, folder, base):
        shutil.rmtree(folder, ignore_errors=True)
        call("cp", "-a", base, folder)
        self.folder, self.working_folder = folder, "/"

    @staticmethod
    def make(base):
        if base.exists():
            return
        unfinished = base.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        print(f"debootstrap {base.name}", flush=True)
        call("debootstrap", "--variant=minbase", base.name, unfinished, mirror())
        for name in ("resolv.conf", "hosts"):
            shutil.copy(pathlib.Path("/etc") / name, unfinished / "etc" / name)
        unfinished.rename(base)

    def path(self, name):
        return self.folder / os.path.join(self.working_folder, name).lstrip("/")

    def run(self, command, mounts=()):
        """Runs a command. `mounts` are pairs of a folder of this machine and a folder of the bare Debian."""
        print(f"{self.folder.name}:", *command, flush=True)
        lines = ["set -e", "mkdir -p dev/pts dev/shm", "mount -t proc proc proc", "mount -t devpts devpts dev/pts",
                 "mount -t tmpfs tmpfs dev/shm"]
        for here, there in mounts:
            self.path(there).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind '{here}' '.{there}'")
        lines.append('exec chroot . /bin/sh -c \'cd "$0" && exec "$@"\' "$@"')
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "DEBIAN_FRONTEND": "noninteractive"}
        call("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(lines), "sh",
             self.working_folder, *command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL)


def instructions(dockerfile):
    """The Dockerfile's instructions: a name in capitals, and the rest of the line."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.M)
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def copy_context(source, to):
    """The files that COPY takes from the source, by .dockerignore."""
    ignored = (source / ".dockerignore").read_text().split()

    def leave_out(folder, names):
        paths = {name: (pathlib.Path(folder) / name).relative_to(source).as_posix() for name in names}
        return [name for name, path in paths.items()
                if any(fnmatch.fnmatch(name if pattern.startswith("**/") else path, pattern.removeprefix("**/"))
                       for pattern in ignored)]

    shutil.copytree(source, to, symlinks=True, ignore=leave_out, dirs_exist_ok=True)


class Dockerfile:
    """Runs the steps of a Dockerfile in bare Debians, one for each stage."""

    def __init__(self, source, base, debian):
        self.source, self.base, self.debian, self.stages = source, base, debian, {}
        self.entrypoint = None

    def take(self, name, rest):
        step = getattr(self, f"take_{name.lower()}", None)
        if step is None:
            sys.exit(f"the Dockerfile has the instruction {name}; teach it to {__file__}")
        print(f"Dockerfile: {name} {rest}", flush=True)
        step(rest)

    def take_arg(self, rest):
        if rest.partition("=")[0] != "DEBIAN":
            sys.exit(f"the Dockerfile has the argument {rest}; expected DEBIAN alone")

    def take_from(self, rest):
        image, name = re.fullmatch(r"(\S+)(?: AS (\S+))?", rest).groups()
        if image != "debian:${DEBIAN}":
            sys.exit(f"the Dockerfile begins with the image {image}; expected debian:${{DEBIAN}}, which is {self.debian}")
        name = name or "final"
        self.stages[name] = self.stage = BareDebian(self.base.with_name(f"stage-{name}"), self.base)

    def take_workdir(self, rest):
        self.stage.working_folder = rest
        self.stage.path("").mkdir(parents=True, exist_ok=True)

    def take_copy(self, rest):
        other, what, where = re.fullmatch(r"(?:--from=(\S+) )?(\S+) (\S+)", rest).groups()
        if other is None:
            copy_context(self.source / what, self.stage.path(where))
            return
        found = list(self.stages[other].folder.glob(what.lstrip("/")))
        if not found:
            sys.exit(f"the Dockerfile copies {what}, which is not there")
        for path in found:
            shutil.copy(path, self.stage.path(where))

    def take_run(self, rest):
        caches, command = re.fullmatch(r"((?:--mount=\S+ )*)(.*)", rest).groups()
        here = output("ccache", "--get-config", "cache_dir")
        pathlib.Path(here).mkdir(parents=True, exist_ok=True)
        mounts = [(here, folder) for folder in re.findall(r"type=cache,target=(\S+)", caches)]
        self.stage.run(["/bin/sh", "-c", command], mounts)

    def take_entrypoint(self, rest):
        self.entrypoint = json.loads(rest)

    def take_cmd(self, rest):
        self.stage.run(self.entrypoint + json.loads(rest))


def test_package(package, base):
    bare = BareDebian(base.with_name("package"), base)
    shutil.copy(package, bare.path("tmp"))
    bare.run(["apt-get", "update", "-qq"])
    bare.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", f"/tmp/{package.name}"])
    bare.run(["dpkg", "-L", "penstock"])
    for arguments in MEASURES:
        bare.run(["penstock", *arguments])
    bare.run(["dpkg", "--purge", "penstock"])
    if bare.path("usr/bin/penstock").exists():
        sys.exit("the program is there after the package was removed")
    shutil.rmtree(bare.folder)


def test_dockerfile(source, base, debian):
    docker = Dockerfile(source, base, debian)
    for name, rest in instructions(source / "Dockerfile"):
        docker.take(name, rest)
    for arguments in MEASURES:
        docker.stage.run(docker.entrypoint + arguments)
    docker.stages["build"].run(["make", "run"])
    for stage in docker.stages.values():
        shutil.rmtree(stage.folder)


def main():
    source, build = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
    if os.geteuid() != 0:
        print("skipped: a bare Debian needs root")
        return 77
    packages = list(build.glob("penstock_*.deb"))
    if len(packages) != 1:
        sys.exit(f"expected one package in {build}, found {len(packages)}; run `make deb`")
    folder = build / "package-test"
    folder.mkdir(exist_ok=True)
    here = platform.freedesktop_os_release()["VERSION_CODENAME"]
    for debian, release in RELEASES.items():
        base, began = folder / release, time.monotonic()
        BareDebian.make(base)
        if release == here:
            test_package(packages[0], base)
        test_dockerfile(source, base, debian)
        print(f"Debian {debian}: the program measures; {(time.monotonic() - began) / 60:.0f} min", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
