"""Virtual environments and Jupyter servers as a user has them, for the packaging tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Runs a command and returns what it printed; a failure shows both streams."""
    done = subprocess.run([str(part) for part in command], env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without what points at its own virtual environment or at an arbiter."""
    dropped = ("VGPU_", "JUPYTER", "PYTHON", "VIRTUAL_ENV", "LD_", "PIP_REQUIRE_VIRTUALENV")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(dropped)}, **extra}


def path_without(folder: Path, *hidden: str) -> str:
    """A PATH with all programs of this one's PATH but those named: a folder of links."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if os.path.isdir(directory) else ():
            link = folder / program.name
            if program.name not in hidden and not os.path.lexists(link):
                link.symlink_to(program)
    return str(folder)


class Environment:
    """A virtual environment. With `borrow`, what our package depends on comes from this interpreter's own one, by a path entry:
    its .pth files are not read there, so an editable jupyter-vgpu in it stays unseen."""

    def __init__(self, folder: Path, *, borrow: bool) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", folder)
        self.python = folder / "bin" / "python"
        if borrow:
            purelib = Path(run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'), end='')"))
            (purelib / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *arguments: str | Path) -> None:
        run(self.python, "-m", "pip", "--quiet", *arguments, env=clean_environment())

    def code(self, source: str, **extra: str) -> Any:
        """Runs Python source that prints JSON as its last line, away from the source tree."""
        return json.loads(run(self.python, "-c", source, env=clean_environment(**extra), cwd=self.folder).splitlines()[-1])

    @contextmanager
    def server(self, *, application: str = "jupyter_server", **extra: str) -> Iterator[Server]:
        """A Jupyter server of this environment, with directories of its own, stopped at the end."""
        # AF_UNIX paths end at 107 bytes, so not under pytest's tmp_path.
        with tempfile.TemporaryDirectory(prefix="vgpu-") as home:
            token = uuid.uuid4().hex
            environment = clean_environment(
                HOME=home,
                XDG_RUNTIME_DIR=home,
                JUPYTER_RUNTIME_DIR=f"{home}/runtime",
                JUPYTER_CONFIG_DIR=f"{home}/config",
                JUPYTER_DATA_DIR=f"{home}/data",
                PATH=f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                **extra,
            )
            log = Path(home) / "server.log"
            command = [self.python, "-m", application, "--no-browser", "--allow-root", "--port=0", f"--IdentityProvider.token={token}"]
            command.append(f"--ServerApp.root_dir={home}")
            with log.open("wb") as out:
                process = subprocess.Popen(list(map(str, command)), env=environment, cwd=home, stdout=out, stderr=subprocess.STDOUT)
            try:
                runtime = Path(home) / "runtime"
                url = wait_for(lambda: _announced_url(runtime), process=process, log=log)
                server = Server(url, token, log)
                wait_for(server.answers, process=process, log=log)
                yield server
                server.stop_kernels()
            finally:
                process.terminate()
                process.wait(30)


def _announced_url(runtime: Path) -> str | None:
    for path in runtime.glob("jpserver-*.json"):
        try:
            return json.loads(path.read_text())["url"]
        except ValueError:
            return None  # half written
    return None


class Server:
    def __init__(self, url: str, token: str, log: Path) -> None:
        self.url = url
        self.log = log
        self._token = token

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Sends JSON and returns the answer's, None where it is empty. An error status is an `HTTPError`."""
        text = self.request_text(path, method=method, body=body)
        return json.loads(text) if text else None

    def request_text(self, path: str, *, method: str = "GET", body: Any = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def answers(self) -> bool:
        try:
            self.request("GET", "api/status")
        except OSError:
            return False
        return True

    def start_kernel(self) -> str:
        return self.request("POST", "api/kernels", {"name": "python3"})["id"]

    def stop_kernels(self) -> None:
        for kernel in self.request("GET", "api/kernels"):
            self.request("DELETE", f"api/kernels/{kernel['id']}")


def wait_for(condition: Callable[[], Any], *, process: subprocess.Popen | None = None, log: Path | None = None, bound: float = 60) -> Any:
    """Waits until `condition` is true and returns its value; fails at the bound (seconds), or as soon as `process` has ended."""
    deadline = time.monotonic() + bound
    while True:
        value = condition()
        if value:
            return value
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            said = log.read_text(errors="replace") if log else ""
            raise AssertionError(f"{'the process ended' if ended else f'not within {bound} s'}\n{said}")
        time.sleep(0.05)


def kernelspec(environment: Environment) -> None:
    """Gives a borrowing environment a python3 kernelspec of its own: ipykernel's stands in the environment it was installed into."""
    folder = environment.folder / "share" / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    argv = [str(environment.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))


def copied_tree(destination: Path) -> Path:
    """A copy of what git tracks or would track: a tree without anything built."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, listed):
        source = ROOT / name
        if source.is_file():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, destination / name)
    return destination
