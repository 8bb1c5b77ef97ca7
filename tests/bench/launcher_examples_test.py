"""Starts the files under examples/ that people copy, each by its launcher or by a stand-in that sets exactly the launcher's
variables. Usage: launcher_examples_test.py PENSTOCK [CLASS]
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

PENSTOCK = pathlib.Path(sys.argv.pop(1)).resolve()
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 60

# Starts the words after `--no-python`, or after srun's flags, once for each process, and ends with the largest exit code.
START = """#!{python}
import os, subprocess, sys
{read}
children = [subprocess.Popen(command, env=dict(os.environ, **variables(rank))) for rank in range(size)]
sys.exit(max(child.wait() for child in children))
"""
TORCHRUN = """
words = sys.argv[1:]
size = int(words[words.index("--nproc-per-node") + 1])
command = words[words.index("--no-python") + 1:]
import socket
store = socket.create_server(("127.0.0.1", 0))  # torchrun's store has the port itself
def variables(rank):
    return dict(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size), GROUP_RANK="0",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.getsockname()[1]), TORCHELASTIC_RUN_ID="none",
                TORCHELASTIC_RESTART_COUNT="0")
"""
SRUN = """
command = [word for word in sys.argv[1:]]
while command[0].startswith("-"):
    del command[0]
nodes, per_node = int(os.environ["SLURM_NNODES"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
size = nodes * per_node
def variables(rank):
    return dict(SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank % per_node), SLURM_NODEID=str(rank // per_node),
                SLURM_NTASKS=str(size), SLURM_STEP_NUM_TASKS=str(size), SLURM_STEP_ID="0",
                SLURM_STEP_TASKS_PER_NODE=f"{per_node}(x{nodes})", SLURM_STEP_NODELIST="localhost")
"""
RAY = """
import concurrent.futures
class util:
    get_node_ip_address = staticmethod(lambda: "127.0.0.1")
init = lambda: None
def get(value):
    return [each.result() for each in value] if isinstance(value, list) else value.result()
class Method:
    def __init__(self, threads, call): self.threads, self.call = threads, call
    def remote(self, *arguments): return self.threads.submit(self.call, *arguments)
class Actor:
    def __init__(self, made): self.made, self.threads = made, concurrent.futures.ThreadPoolExecutor(1)
    def __getattr__(self, name): return Method(self.threads, getattr(self.made, name))
def remote(**_):
    def decorate(kind):
        kind.remote = classmethod(lambda cls: Actor(cls()))
        return kind
    return decorate
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Started(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "penstock").symlink_to(PENSTOCK)
        self.environment = {key: value for key, value in os.environ.items()
                            if not re.match("(SLURM|OMPI|PMI|PMIX|PET|TORCHELASTIC)_|(LOCAL_)?(RANK|WORLD_SIZE)$", key)}
        self.environment["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        # mpirun as root and with more processes than cores, as test machines need it
        self.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                             "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}

    def stand_in(self, name, read):
        file = self.folder / "bin" / name
        file.write_text(START.format(python=sys.executable, read=read))
        file.chmod(0o755)

    def run_one(self, command, **variables):
        return subprocess.run([str(word) for word in command], env=self.environment | variables, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)

    def run_all(self, command, variables_of, size):
        """Rank 0's standard output; every process must end well, and only rank 0 prints."""
        with concurrent.futures.ThreadPoolExecutor(size) as threads:
            done = list(threads.map(lambda rank: self.run_one(command, **variables_of(rank)), range(size)))
        for rank, each in enumerate(done):
            self.assertEqual(each.returncode, 0, f"rank {rank}: {each.stderr}")
            self.assertEqual(bool(each.stdout), rank == 0)
        return done[0].stdout

    def expect_ranks(self, text, size):
        self.assertEqual([rank["rank"] for rank in json.loads(text)["ranks"]], list(range(size)))

    def objects(self, name):
        try:
            import yaml
        except ImportError:
            self.skipTest("needs PyYAML (Debian: python3-yaml)")
        return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))


class ByVariables(Started):
    def test_torchrun(self):
        if shutil.which("torchrun") is None:
            self.stand_in("torchrun", TORCHRUN)
        done = self.run_one([EXAMPLES / "torchrun" / "run.sh", "3"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("total images/sec"), 1)
        self.assertIn("rank 2 on ", done.stdout)

    def submit(self, name):
        """As sbatch does, for a cluster of this host alone."""
        script = EXAMPLES / "slurm" / name
        asked = dict(re.findall(r"(?m)^#SBATCH --([a-z-]+)=(\S+)", script.read_text()))
        self.stand_in("srun", SRUN)
        done = self.run_one(["bash", script], SLURM_JOB_ID=str(os.getpid()), SLURM_SUBMIT_DIR=str(self.folder),
                            SLURM_NNODES=asked["nodes"], SLURM_NTASKS_PER_NODE=asked["ntasks-per-node"],
                            SLURM_CPUS_PER_TASK=asked["cpus-per-task"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("total images/sec"), 1)
        return done.stdout

    def test_slurm_one_node(self):
        self.submit("one_node.sbatch")
        self.expect_ranks((self.folder / f"penstock-{os.getpid()}.json").read_text(), 2)

    def test_slurm_several_nodes(self):
        text = self.submit("several_nodes.sbatch")
        records = self.folder / f"penstock-{os.getpid()}"
        self.expect_ranks((records / "rank0.json").read_text(), 4)
        self.assertEqual([rank["rank"] for rank in json.loads((records / "rank3.json").read_text())["ranks"]], [3])
        self.assertIn("device waited p50 ms", text)

    def test_kubernetes_indexed_job(self):
        service, job = self.objects("indexed-job.yaml")
        spec = job["spec"]["template"]["spec"]
        container = spec["containers"][0]
        given = {each["name"]: each["value"] for each in container["env"]}
        self.assertEqual(int(given["WORLD_SIZE"]), job["spec"]["completions"])
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        # The name of pod 0 as the service gives it; here it is this host.
        self.assertEqual(given["MASTER_ADDR"], f"{job['metadata']['name']}-0.{service['metadata']['name']}")
        self.assertEqual(spec["subdomain"], service["metadata"]["name"])
        given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        text = self.run_all(container["command"], lambda rank: given | {"JOB_COMPLETION_INDEX": str(rank)}, 2)
        self.expect_ranks(text, 2)

    def test_kubernetes_trainjob(self):
        (job,) = self.objects("trainjob.yaml")
        trainer = job["spec"]["trainer"]
        port = str(free_port())
        text = self.run_all(trainer["command"], lambda rank: {
            "PET_NODE_RANK": str(rank), "PET_NNODES": str(trainer["numNodes"]), "PET_MASTER_ADDR": "127.0.0.1",
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]), "PET_MASTER_PORT": port}, trainer["numNodes"])
        self.expect_ranks(text, 2)

    def test_kubernetes_pytorchjob(self):
        (job,) = self.objects("pytorchjob.yaml")
        replicas = list(job["spec"]["pytorchReplicaSpecs"].values())
        size = sum(each["replicas"] for each in replicas)
        commands = [each["template"]["spec"]["containers"][0]["command"] for each in replicas]
        self.assertEqual(commands[0], commands[1])
        port = str(free_port())
        text = self.run_all(commands[0], lambda rank: {
            "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": str(rank), "PET_NNODES": str(size)}, size)
        self.expect_ranks(text, size)

    def test_ray(self):
        try:
            import ray  # noqa: F401
        except ImportError:
            (self.folder / "ray.py").write_text(RAY)
        done = self.run_one([sys.executable, EXAMPLES / "ray" / "run.py", "2", "--variable-update=horovod", "--model=trivial",
                             "--device=emulated:img_per_s=2000", "--batch-size=8", "--num-batches=20", "--fake-location=host",
                             "--json"], PYTHONPATH=str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_ranks(done.stdout, 2)


class ByMpirun(Started):
    def test_kubernetes_mpijob(self):
        (job,) = self.objects("mpijob.yaml")
        replicas = job["spec"]["mpiReplicaSpecs"]
        command = replicas["Launcher"]["template"]["spec"]["containers"][0]["command"]
        self.assertEqual(int(command[command.index("-np") + 1]),
                         replicas["Worker"]["replicas"] * job["spec"]["slotsPerWorker"])
        if shutil.which("mpirun") is None or "mpi" not in self.run_one([PENSTOCK, "allreduce", "--help"]).stdout.lower():
            self.skipTest("needs Open MPI's mpirun, and a program with MPI")
        done = self.run_one(command)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_ranks(done.stdout, 2)


if __name__ == "__main__":
    unittest.main()
