import sys

from jupyter_vgpu.arbiter.process import main

if __name__ == "__main__":
    sys.exit(main())
