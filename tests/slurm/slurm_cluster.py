"""A real Slurm of two nodes on one machine: munged, slurmctld, and a slurmd for each of n0 and n1. Root only.

A test program calls enter() first: it runs again inside namespaces of its own (processes, network, mounts, host name), so
that ports are free, n0 and n1 resolve, and everything is gone with the program, whatever ends it.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MARK = "FARHOP_SLURM_DIRECTORY"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "unshare", "ip")
PR_SET_PDEATHSIG = 1

CONFIGURATION = """
ClusterName=farhop
SlurmctldHost=farhop-slurm(127.0.0.1)
SlurmctldPort=6817
AuthType=auth/munge
# A requeued job waits until its credential has expired.
AuthInfo=socket={d}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={d}/state
SlurmctldPidFile={d}/slurmctld.pid
SlurmctldLogFile={d}/slurmctld.log
SlurmdSpoolDir={d}/spool-%n
SlurmdPidFile={d}/slurmd-%n.pid
SlurmdLogFile={d}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=5
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=100000
SlurmdParameters=config_overrides
JobRequeue=1
NodeName=n0 NodeHostname=farhop-slurm NodeAddr=127.0.0.1 Port=6818 CPUs=4 RealMemory=2000 State=UNKNOWN
NodeName=n1 NodeHostname=farhop-slurm NodeAddr=127.0.0.1 Port=6819 CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP
"""


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def enter():
    """Returns inside the namespaces; outside it waits, cleans up and exits."""
    if MARK in os.environ:
        return
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print(f"skipped: needs root, and {', '.join(missing) or 'nothing else'}")
        sys.exit(77)
    directory = tempfile.mkdtemp(prefix="farhop-slurm-")
    words = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    child = subprocess.Popen(words, env={**os.environ, MARK: directory}, preexec_fn=die_with_parent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.kill())
    try:
        code = child.wait()
    finally:
        child.kill()
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(code if code >= 0 else 1)


def sh(*words, check=True, timeout=60, **more):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                          check=False, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what()} within {seconds} s" if callable(what) else f"no {what} within {seconds} s")


class SlurmCluster:
    """Inside the namespaces. `directory` is seen by both nodes, which share everything but their names."""

    def __init__(self):
        self.directory = pathlib.Path(os.environ[MARK])
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", self.directory)  # gone with the namespace
        sh("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        sh("ip", "link", "set", "lo", "up")
        # Names resolve only where some address is not a loopback one.
        sh("ip", "link", "add", "s0", "type", "veth", "peer", "name", "s1")
        sh("ip", "address", "add", "10.78.0.1/24", "dev", "s0")
        sh("ip", "link", "set", "s0", "up")
        sh("ip", "link", "set", "s1", "up")
        sh("hostname", "farhop-slurm")
        hosts = self.directory / "hosts"
        hosts.write_text("127.0.0.1 localhost farhop-slurm n0 n1\n")
        sh("mount", "--bind", hosts, "/etc/hosts")
        for name in ("munge", "state", "spool-n0", "spool-n1"):
            (self.directory / name).mkdir(mode=0o700 if name == "munge" else 0o755)
        (self.directory / "slurm.conf").write_text(CONFIGURATION.format(d=self.directory))
        os.environ["SLURM_CONF"] = str(self.directory / "slurm.conf")
        self.daemons = {}
        self._start_munge()
        self._start("slurmctld", "slurmctld", "-D", "-i")
        for node in ("n0", "n1"):
            self.start_node(node)
        until(lambda: self.idle_nodes() == 2, 30, lambda: f"no two idle nodes: {sh('sinfo', check=False)}{self.logs()}")

    def _start_munge(self):
        m = self.directory / "munge"
        (m / "key").write_bytes(os.urandom(128))
        (m / "key").chmod(0o400)
        sh("munged", "--force", f"--key-file={m}/key", f"--socket={m}/socket", f"--pid-file={m}/pid", f"--log-file={m}/log",
           f"--seed-file={m}/seed")

    def _start(self, name, *words):
        with open(self.directory / f"{name}.out", "w") as out:
            self.daemons[name] = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)

    def start_node(self, node):
        self._start(node, "slurmd", "-D", "-N", node)

    def kill_node_daemon(self, node):
        """slurmd alone: what it has started goes on."""
        self.daemons[node].kill()
        self.daemons[node].wait()

    def kill_steps(self, node, job):
        """The slurmstepds of a job's steps on a node, which stand between Slurm and the processes; not the batch script's."""
        victims = [p.pid for p in processes("slurmstepd")
                   if f"[{job.number}." in p.command and ".batch]" not in p.command and self._spool_of(p.pid) == node]
        assert victims, f"no slurmstepd of job {job.number} on {node}: {sh('ps', 'axf')}"
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    def _spool_of(self, pid):
        """The node in whose spool directory a slurmstepd has its socket."""
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            if target.startswith("socket:"):
                path = unix_sockets().get(target[8:-1], "")
                for node in ("n0", "n1"):
                    if f"spool-{node}/" in path:
                        return node
        return None

    def idle_nodes(self):
        states = sh("sinfo", "-h", "-N", "-o", "%T", check=False).split()
        return states.count("idle")

    def logs(self):
        text = ""
        for path in sorted(self.directory.glob("*.log")) + sorted(self.directory.glob("*.out")):
            text += f"\n== {path.name}\n" + path.read_text(errors="replace")[-3000:]
        return text

    def submit(self, *words, env=None):
        output = sh("sbatch", "--parsable", *words, env={**os.environ, **(env or {})})
        return Job(self, output.strip().split(";")[0])


def unix_sockets():
    """Inode -> path."""
    table = {}
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7:
            table[fields[6]] = fields[7]
    return table


class Job:
    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number

    def info(self):
        text = sh("scontrol", "-o", "show", "job", self.number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def output(self):
        path = pathlib.Path(self.info()["StdOut"])
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, *states, seconds=60):
        return until(lambda: (lambda info: info if info["JobState"] in states else None)(self.info()), seconds,
                     lambda: f"job {self.number} is {self.info()['JobState']}, not {states}:\n{self.output()}\n"
                             f"{sh('ps', 'axf')}{self.cluster.logs()}")

    def wait_for_output(self, text, seconds=60):
        until(lambda: text in self.output(), seconds, lambda: f"no '{text}' in:\n{self.output()}\n{sh('ps', 'axf')}")


class Process:
    def __init__(self, pid):
        directory = pathlib.Path(f"/proc/{pid}")
        self.pid = pid
        self.name = (directory / "comm").read_text().strip()
        self.command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        variables = (directory / "environ").read_bytes().decode(errors="replace").split("\0")
        self.environ = dict(v.split("=", 1) for v in variables if "=" in v)


def processes(name=None):
    """Of these namespaces."""
    found = []
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            process = Process(int(directory.name))
        except OSError:
            continue
        if process.command and (name is None or process.name == name):
            found.append(process)
    return found
