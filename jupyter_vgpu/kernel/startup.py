# Loaded through PYTHONSTARTUP in whatever Python environment a tenant's kernel runs, whether or not that environment has our package.
# It stands in for the user's own PYTHONSTARTUP, so it must leave no trace: it executes in the user's namespace, hence a comment here
# and no docstring (that would replace the namespace's __doc__), one function, and its removal. Python does not cache the bytecode of
# such a file, so what can wait is in magics.py, loaded from beside this file when %vgpu is first used.


def _jupyter_vgpu_startup(namespace):
    import os
    import sys

    own_directory = os.path.dirname(sys._getframe().f_code.co_filename)
    os.environ.pop("PYTHONSTARTUP", None)
    users_file = os.environ.pop("VGPU_PYTHONSTARTUP", None)
    if users_file:
        os.environ["PYTHONSTARTUP"] = users_file

    # Not imported here: a plain interactive Python that reads this file must not pay for IPython.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None

    def vgpu(line):
        """Show or change this kernel's share of the GPU while it runs.

        %vgpu                            what this kernel holds: memory used and limit, compute share, device, state
        %vgpu 0.5                        half of a device: memory and compute
        %vgpu memory=8GiB                limit of device memory: what CUDA reports as the total
        %vgpu memory=8GiB compute=0.25   compute is a fraction of one device, 0.01 to 1
        %vgpu compute_cap=0.5            never more than this, even while nobody else wants the device; `none` lifts it
        %vgpu class=small                the values of a class that the administrator has defined

        A change is all or nothing and loses no data. What the policy does not allow, or what is less than the kernel uses now,
        is refused with the reason.
        """
        import importlib.util
        import os
        import sys

        name = "_jupyter_vgpu_magics"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, os.path.join(own_directory, "magics.py"))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[name] = module
        sys.modules[name].vgpu(line)

    # Of IPython's shells only ipykernel's has a kernel.
    if getattr(shell, "kernel", None) is not None:
        try:
            shell.register_magic_function(vgpu, "line", "vgpu")
        except Exception as error:
            shell.log.warning("jupyter-vgpu: this kernel has no %%vgpu: %s", error)

    if not users_file:
        return
    if "__file__" in namespace:
        namespace["__file__"] = users_file
    if shell is None:
        with open(users_file, "rb") as file:
            code = compile(file.read(), users_file, "exec")
        exec(code, namespace)
        return

    # What follows is how IPython runs PYTHONSTARTUP: the file sees the argv and the search path that it would see without us, its
    # exceptions are shown and the kernel goes on.
    from IPython.utils.path import filefind

    own_argv = sys.argv
    on_path = own_directory in sys.path
    if on_path:
        sys.path.remove(own_directory)
    try:
        path = filefind(users_file, [".", shell.ipython_dir])
        sys.argv = [path] + own_argv[1:]
        if path.endswith((".ipy", ".ipynb")):
            shell.safe_execfile_ipy(path, shell_futures=False)
        else:
            shell.safe_execfile(path, namespace, shell_futures=False, raise_exceptions=True)
    except Exception:
        shell.log.warning("Unknown error in handling PYTHONSTARTUP file %s:", users_file)
        shell.showtraceback()
    finally:
        sys.argv = own_argv
        if on_path:
            sys.path.insert(0, own_directory)


try:
    _jupyter_vgpu_startup(globals())
finally:
    del _jupyter_vgpu_startup
