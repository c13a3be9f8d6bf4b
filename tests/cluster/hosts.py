"""Three hosts on one machine: network namespaces on a bridge, an sshd in each with a host key and a port of its own, and a
directory of its own that each sees under the same path. Root only.

A test program calls enter() first: it runs again inside namespaces of its own (network, mounts, processes), so that
nothing of the machine's network or mounts is touched and all of it is gone with the program, whatever ends it.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MARK = "FARHOP_CLUSTER_DIRECTORY"


def enter():
    """Returns inside the namespaces; outside it waits, cleans up and exits."""
    if MARK in os.environ:
        return
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(77)
    directory = tempfile.mkdtemp(prefix="farhop-cluster-")
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    child = subprocess.Popen(words, env={**os.environ, MARK: directory})
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.kill())
    try:
        code = child.wait()
    finally:
        child.kill()
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(code if code >= 0 else 1)


def sh(*words, check=True, **more):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          check=False, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def until(condition, seconds, what="it"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds} s")


class Host:
    def __init__(self, cluster, index):
        self.cluster, self.index = cluster, index
        self.name, self.port = f"h{index}", 2200 + index
        self.v4, self.v6 = f"10.77.0.{index + 1}", f"fd77::{index + 1}"
        self.own = cluster.directory / self.name  # what the host sees as cluster.place
        self.own.mkdir()
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cluster.directory / f"{self.name}.key")
        self._start()

    def _start(self):
        c = self.cluster
        config = c.directory / f"{self.name}.conf"
        config.write_text(f"Port {self.port}\nHostKey {c.directory}/{self.name}.key\nPidFile {c.directory}/{self.name}.pid\n"
                          f"AuthorizedKeysFile {c.directory}/client.key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
                          "PasswordAuthentication no\nPrintMotd no\nMaxStartups 100\n")
        # The first process of the host, which outlives its sshd.
        script = (f"mount --bind {self.own} {c.place} && mount -t tmpfs tmpfs /dev/shm && hostname {self.name} && "
                  f"while [ ! -e {c.directory}/{self.name}.up ]; do sleep 0.02; done; /usr/sbin/sshd -f {config}; "
                  "trap : TERM; while :; do sleep 600 & wait; done")
        self.unshare = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        self.pid = int(until(lambda: sh("pgrep", "-P", self.unshare.pid, check=False).split(), 10, f"{self.name}'s start")[0])
        link = f"v{self.index}"
        # The namespace exists once the child differs from us.
        until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10)
        sh("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        sh("ip", "link", "set", link, "master", "br0", "up")
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "link", "set", "eth0", "up")
        self.addresses("add")
        self.inside("ip", "-6", "addr", "add", f"{self.v6}/64", "dev", "eth0", "nodad")
        (c.directory / f"{self.name}.up").touch()
        until(lambda: (c.directory / f"{self.name}.pid").exists(), 10, f"sshd of {self.name}")

    def inside(self, *words, **more):
        return sh("nsenter", "--target", self.pid, "--net", "--mount", "--uts", "--pid", *words, **more)

    def addresses(self, verb):
        """Adds or deletes ("del") the IPv4 address."""
        self.inside("ip", "addr", verb, f"{self.v4}/24", "dev", "eth0")

    def link(self, state):
        sh("ip", "link", "set", f"v{self.index}", state)

    def processes(self):
        """Of jobs: their agents and trainers."""
        mine = os.readlink(f"/proc/{self.pid}/ns/net")
        return [p for p in self.cluster.processes() if _link(f"/proc/{p}/ns/net") == mine]

    def sshd_sessions(self):
        """The processes of sshd that serve connections."""
        listener = (self.cluster.directory / f"{self.name}.pid").read_text().strip()
        inner = self.inside("pgrep", "-x", "sshd", check=False).split()
        return [p for p in inner if p != listener]


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


class Cluster:
    def __init__(self, count=3):
        self.directory = pathlib.Path(os.environ[MARK])
        self.place = self.directory / "machine"
        self.place.mkdir()
        sh("mount", "--make-rprivate", "/")
        sh("mount", "-t", "tmpfs", "tmpfs", "/run")
        pathlib.Path("/run/sshd").mkdir(mode=0o755)
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "addr", "add", "10.77.0.254/24", "dev", "br0")
        sh("ip", "-6", "addr", "add", "fd77::fe/64", "dev", "br0", "nodad")
        sh("ip", "link", "set", "br0", "up")
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / "client.key")
        self.hosts = [Host(self, i) for i in range(count)]
        names = self.directory / "names"
        names.write_text("127.0.0.1 localhost\n" + "".join(f"{h.v4} {h.name}\n{h.v6} {h.name}-six\n" for h in self.hosts))
        sh("mount", "--bind", names, "/etc/hosts")
        self.known = self.directory / "known_hosts"
        self.trust()
        self.started = []

    def trust(self):
        self.known.write_text("".join(
            f"[{name}]:{h.port} {(self.directory / f'{h.name}.key.pub').read_text()}"
            for h in self.hosts for name in (h.name, h.v4, h.v6)))

    def host_file(self, lines=None):
        path = self.directory / f"hosts-{time.monotonic_ns()}.txt"
        path.write_text("\n".join(lines or [f"{h.name} {h.port}" for h in self.hosts]) + "\n")
        return path

    def ssh_flags(self):
        return ["--ssh-identity", self.directory / "client.key", "--ssh-option", f"UserKnownHostsFile={self.known}",
                "--ssh-option", "GlobalKnownHostsFile=/dev/null"]

    def processes(self):
        """All processes of this cluster that carry a job's id, zombies excepted."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                environment = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if b"FARHOP_JOB_ID=" in environment:
                found.append(int(entry))
        return found

    def start(self, *words):
        program = Program(self, words)
        self.started.append(program)
        return program

    def clean(self):
        """After a test: ends what it left, and says what that was."""
        for program in self.started:
            program.kill()
        self.started.clear()
        # An agent whose ssh was given up while it connected may only just find that out.
        end = time.monotonic() + 3
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left


class Program:
    def __init__(self, cluster, words):
        self.files = [open(cluster.directory / f"{stream}-{time.monotonic_ns()}", "w+") for stream in ("out", "err")]
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=self.files[0],
                                        stderr=self.files[1], env={**os.environ, "TMPDIR": str(cluster.directory)})

    @property
    def out(self):
        return pathlib.Path(self.files[0].name).read_text(errors="replace")

    @property
    def err(self):
        return pathlib.Path(self.files[1].name).read_text(errors="replace")

    def await_out(self, text, seconds=30, count=1):
        def there():
            if self.process.poll() is not None and self.out.count(text) < count:
                raise AssertionError(f"ended with {self.process.returncode}\n{self.out}\n{self.err}")
            return self.out.count(text) >= count
        until(there, seconds, f"'{text}'\n{self.out}\n{self.err}\n:")

    def wait(self, seconds=30):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s\n{self.out}\n{self.err}") from None

    def kill(self):
        self.process.kill()
        self.process.wait()
        for file in self.files:
            file.close()
