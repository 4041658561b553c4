"""The policy in force: which file it comes from, and what happens when that file changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from jupyter_vgpu.arbiter.api import PolicyView
from jupyter_vgpu.pool.model import InvalidValue
from jupyter_vgpu.pool.policy import Policy
from jupyter_vgpu.pool.policy_text import load_policy

SYSTEM_POLICY = Path("/etc/jupyter-vgpu/policy.yaml")
_SIZE_MAXIMUM = 1 << 20

_log = logging.getLogger(__name__)


def candidates(environ: Mapping[str, str]) -> list[Path]:
    """Where a policy may be, first match wins. VGPU_POLICY is the only candidate where it is set: a file that is named must be used."""
    given = environ.get("VGPU_POLICY")
    if given:
        return [Path(os.path.abspath(given))]
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or "/nonexistent", ".config")
    return [SYSTEM_POLICY, Path(config) / "jupyter-vgpu" / "policy.yaml"]


class PolicyFile:
    """The last good policy, and why the file on disk is not in force if it is not.

    `reload` is called by the arbiter's loop at the start and after each notice of `PolicyWatcher`.
    """

    def __init__(self, paths: list[Path], *, named: bool):
        self._paths = paths
        self._named = named
        self.policy = Policy()
        self.source: Path | None = None
        self.revision = 0
        self.error: str | None = None

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> PolicyFile:
        return cls(candidates(environ), named=bool(environ.get("VGPU_POLICY")))

    @property
    def paths(self) -> list[Path]:
        return list(self._paths)

    def reload(self) -> bool:
        """Reads the file again. True if policy, source or error is another than before; an invalid file changes the error alone."""
        before = (self.policy, self.source, self.error)
        path = next((path for path in self._paths if path.exists()), None)
        try:
            if path is not None:
                policy = load_policy(_read(path))
            elif self._named:
                raise InvalidValue(field="VGPU_POLICY", value=str(self._paths[0]), allowed="a file that exists")
            else:
                policy = Policy()
        except (InvalidValue, OSError, UnicodeDecodeError) as error:
            self.error = f"{path or self._paths[0]}: {error}; the policy before it stays in force"
        else:
            self.policy, self.source, self.error = policy, path, None
        changed = (self.policy, self.source, self.error) != before
        if changed:
            if (self.policy, self.source) != before[:2]:
                self.revision += 1
            if self.error:
                _log.error("policy: %s", self.error)
            else:
                _log.info("policy: %s in force", self.source or "the built-in default")
        return changed

    def view(self) -> PolicyView:
        return {
            "source": str(self.source) if self.source else None,
            "revision": self.revision,
            "error": self.error,
            "policy": self.policy.model_dump(mode="json"),
        }


def _read(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read(_SIZE_MAXIMUM + 1)
    if len(text) > _SIZE_MAXIMUM:
        raise InvalidValue(field="policy", value=f"{path}, over {_SIZE_MAXIMUM} characters", allowed=f"at most {_SIZE_MAXIMUM} characters")
    return text


class PolicyWatcher(FileSystemEventHandler):
    """Calls `notice` (from watchdog's thread) when something happens to one of the files.

    Directories are watched, not files: editors replace a file by renaming another over it, and a file may appear later. Where the
    directory itself does not exist, its nearest existing ancestor is watched until it does; `rearm` is called by the loop after a notice.
    """

    def __init__(self, paths: list[Path], notice: Callable[[], None]):
        self._paths = paths
        self._notice = notice
        self._observer = Observer()
        self._watches: dict[str, object] = {}
        self.rearm()
        self._observer.start()

    def rearm(self) -> None:
        """Watches the directories that are nearest to the files now."""
        wanted = {str(_nearest_directory(path)) for path in self._paths}
        for directory in wanted - self._watches.keys():
            try:
                self._watches[directory] = self._observer.schedule(self, directory)
            except OSError as error:
                _log.warning("changes of the policy in %s will not be noticed: %s", directory, error)
        for directory in self._watches.keys() - wanted:
            self._observer.unschedule(self._watches.pop(directory))

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type in ("opened", "closed_no_write"):
            return  # our own reading of the file
        touched = [Path(os.fsdecode(name)) for name in (event.src_path, event.dest_path) if name]
        if any(path == name or name in path.parents for path in self._paths for name in touched):
            self._notice()

    def close(self) -> None:
        self._observer.stop()
        self._observer.join()


def _nearest_directory(path: Path) -> Path:
    return next((parent for parent in path.parents if parent.is_dir()), Path("/"))
