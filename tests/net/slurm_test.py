#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the files of examples/slurm as jobs of a real Slurm of two nodes. Without root, namespaces or Slurm it exits with 77.

Usage: hosts.sh 2 slurm_test.py PENSTOCK [TEST...]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import hosts

PENSTOCK = pathlib.Path(sys.argv.pop(1)).resolve()
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "slurm"
PRIVATE = "PENSTOCK_SLURM_TEST"
LIMIT_S = 60
SETTINGS = """
ClusterName=test
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=YES
"""


def why_not():
    if os.geteuid() != 0:
        return "only root may start Slurm's daemons"
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    return f"there is no {', '.join(missing)}; install slurm-wlm" if missing else None


class Slurm(unittest.TestCase):
    """Its daemons, with their files in one folder. The hosts' names are in a private view of /etc/hosts."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name in ("state", "bin"):
            (cls.folder / name).mkdir()
        (cls.folder / "bin" / "penstock").symlink_to(PENSTOCK)
        cls.hosts, cls.daemons = hosts.names(), []
        cls.addClassCleanup(cls.end)
        addresses = [hosts.address(host) for host in cls.hosts]
        cls.hide("/etc/hosts", "127.0.0.1 localhost\n" + "".join(f"{a} {h}\n" for a, h in zip(addresses, cls.hosts)))
        cls.start_munge()
        nodes = "\n".join(f"NodeName={h} NodeAddr={a} CPUs=4 State=UNKNOWN" for a, h in zip(addresses, cls.hosts))
        cls.settings = cls.folder / "slurm.conf"
        cls.settings.write_text(SETTINGS.format(controller=cls.hosts[0], address=addresses[0], folder=cls.folder, nodes=nodes))
        cls.environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_", "PRTE_"))}
        cls.environment |= {"SLURM_CONF": str(cls.settings), "PATH": f"{cls.folder / 'bin'}:{os.environ['PATH']}"}
        cls.without_control_groups()
        cls.start("slurmctld", hosts.on(cls.hosts[0], ["slurmctld", "-D"]))
        for host in cls.hosts:
            (cls.folder / f"spool-{host}").mkdir()
            cls.start(f"slurmd-{host}", hosts.on(host, ["slurmd", "-D", "-N", host]))
        cls.await_nodes()

    @classmethod
    def hide(cls, path, text):
        """Gives the file at `path` other contents, for this process and its children."""
        file = cls.folder / pathlib.Path(path).name
        file.write_text(text)
        subprocess.run(["mount", "--bind", file, path], check=True)

    @classmethod
    def start_munge(cls):
        """Slurm's messages are signed by munged, which insists on who may write its folder."""
        cls.folder.chmod(0o755)
        munge = cls.folder / "munge"
        munge.mkdir(mode=0o755)
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (munge, key):
            shutil.chown(path, "munge", "munge")
        cls.start("munged", ["setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged", "--foreground",
                             f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--seed-file={munge}/seed",
                             f"--log-file={munge}/log"])

    @classmethod
    def without_control_groups(cls):
        """slurmd looks for them, although these settings do not use them."""
        version = subprocess.run(["slurmd", "-V"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True).stdout
        plugin = "disabled" if int(version.split()[1].split(".")[0]) >= 23 else "cgroup/v1"
        (cls.folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")

    @classmethod
    def start(cls, name, command):
        with open(cls.folder / f"{name}.log", "wb") as log:
            environment = getattr(cls, "environment", os.environ)
            cls.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment))

    @classmethod
    def end(cls):
        for daemon in reversed(cls.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    @classmethod
    def ask(cls, command):
        """On the first host."""
        return subprocess.run(hosts.on(cls.hosts[0], command), env=cls.environment, cwd=cls.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)

    @classmethod
    def logs(cls):
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-3000:]}" for file in cls.folder.glob("*.log"))

    @classmethod
    def await_nodes(cls):
        deadline = time.monotonic() + LIMIT_S
        while True:
            said = cls.ask(["sinfo", "--noheader", "--format", "%T %D"]).stdout
            if said.split() == ["idle", str(len(cls.hosts))]:
                return
            ended = [daemon.args[-1] for daemon in cls.daemons if daemon.poll() is not None]
            if ended:  # this machine lacks something that Slurm needs
                raise unittest.SkipTest(f"Slurm does not start here, {' '.join(map(str, ended))} ended:\n{cls.logs()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"sinfo: {said}\n{cls.logs()}")
            time.sleep(0.2)

    def submit(self, *words):
        submitted = self.ask(["sbatch", "--parsable", "--output", "job.out", *words])
        self.assertEqual(submitted.returncode, 0, submitted.stdout)
        return submitted.stdout.strip()

    def output_at_end(self):
        """What the job printed, when no job is left."""
        deadline, file = time.monotonic() + LIMIT_S, self.folder / "job.out"
        while left := self.ask(["squeue", "--noheader", "--format=%i %T %r"]).stdout.strip():
            self.assertLess(time.monotonic(), deadline, f"{left}\n{file.read_text() if file.exists() else ''}\n{self.logs()}")
            time.sleep(0.2)
        return file.read_text(errors="replace")

    def test_one_node(self):
        job = self.submit(EXAMPLES / "one_node.sbatch")
        said = self.output_at_end()
        result = json.loads((self.folder / f"penstock-{job}.json").read_text())
        self.assertEqual([rank["rank"] for rank in result["ranks"]], [0, 1])
        self.assertEqual(said.count("total images/sec"), 1, said)

    def test_several_nodes(self):
        job = self.submit(EXAMPLES / "several_nodes.sbatch")
        said = self.output_at_end()
        result = json.loads((self.folder / f"penstock-{job}" / "rank0.json").read_text())
        self.assertEqual([rank["host"] for rank in result["ranks"]], [host for host in self.hosts for _ in range(2)])
        for rank in range(4):
            self.assertTrue((self.folder / f"penstock-{job}" / f"rank{rank}.json").exists())
        self.assertEqual(said.count("total images/sec"), 1, said)

    def test_a_killed_task_is_named(self):
        job = self.folder / "killed.sbatch"
        job.write_text("#!/bin/bash\nsrun penstock run --variable-update horovod --device emulated:img_per_s=100 --model trivial "
                       "--batch-size 4 --num-batches 100000 --fake-location host --out result.json\n")
        self.submit("--nodes=2", "--ntasks-per-node=1", job)
        steps, deadline = self.folder / "result.steps.jsonl", time.monotonic() + LIMIT_S
        while not (steps.exists() and '"step":3' in steps.read_text()):
            self.assertLess(time.monotonic(), deadline, self.logs())
            time.sleep(0.1)
        host = self.hosts[1]
        pids = subprocess.run(["ip", "netns", "pids", host], stdout=subprocess.PIPE, text=True, timeout=10, check=True).stdout.split()
        victim = [pid for pid in pids if os.readlink(f"/proc/{pid}/exe") == str(PENSTOCK)]
        self.assertEqual(len(victim), 1)
        os.kill(int(victim[0]), 9)
        self.assertRegex(self.output_at_end(), rf"rank 1 \(host {host}.* was lost while measuring")


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    if PRIVATE not in os.environ:  # mounts are private, and go with this process
        os.environ[PRIVATE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, __file__, PENSTOCK, *sys.argv[1:]])
    result = unittest.main(verbosity=2, exit=False).result
    sys.exit(77 if result.skipped else not result.wasSuccessful())
