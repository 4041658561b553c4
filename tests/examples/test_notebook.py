"""The example notebook tells its story on the simulator, each figure of it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def executed(simulated) -> dict[str, str]:
    """Source of each code cell -> what it showed, as plain text."""
    notebook = nbformat.read(EXAMPLES / "two_kernels.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = [output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", "") for output in cell.outputs]
            shown[cell.source] = "".join(parts)
    return shown


def test_notebook_shows_quota_denial_neighbour_and_live_resize(executed):
    def output(beginning: str) -> str:
        return next(text for source, text in executed.items() if source.startswith(beginning))

    assert "of 16.0 GiB" in output("from demo_gpu")
    assert "of 4 GiB" in output("%vgpu memory=4GiB")
    assert "of 4.0 GiB" in output("print(gpu.memory())")
    assert output("x = gpu.upload") == "[12.0, 24.0, 36.0, 48.0]"
    assert "of 2.0 GiB" in output("other = OtherKernel")
    denial = output("model = gpu.allocate(3)")
    assert "denied: the GPU has no room" in denial
    assert "there:" in denial
    assert "of 6 GiB" in output("%vgpu memory=6GiB")
    assert "of 6.0 GiB" in output("batch = gpu.allocate(2)")
    assert "memory" in output("%vgpu memory=2GiB")


def test_notebook_is_stored_without_outputs():
    notebook = nbformat.read(EXAMPLES / "two_kernels.ipynb", as_version=4)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)
