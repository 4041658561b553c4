"""The headers of native/include/vgpu as cffi declarations, so that no struct is written down twice."""

from __future__ import annotations

import re

from jupyter_vgpu.native import locate

_CPLUSPLUS = re.compile(r"#ifdef __cplusplus\n.*?#endif\n", re.DOTALL)


def declarations(name: str) -> str:
    """The text of a header for `FFI.cdef`. These headers hold structs, functions and integer macros and nothing else, so what has to go
    is the preprocessor's part that is no `#define`. Raises `NativeUnavailable` if the header is not installed."""
    text = _CPLUSPLUS.sub("", locate.header(name).read_text(encoding="utf-8"))
    return "\n".join(line for line in text.splitlines() if not line.startswith("#") or re.match(r"#define \w+ \w+$", line))
