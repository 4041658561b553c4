"""``python -m jupyter_vgpu`` is ``jupyter vgpu``: kernelspecs name the interpreter, since a client's PATH may not have our script."""

import sys

from jupyter_vgpu.cli import main

sys.exit(main())
