"""Runs a script's text as a cell of a real Jupyter kernel, and prints what the cell shows: jupyter_kernel.py SCRIPT."""
import pathlib
import sys

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
try:
    failed = []

    def show(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif message["msg_type"] == "error":
            failed.append(content["ename"])
            print("\n".join(content["traceback"]), flush=True)

    client.execute_interactive(pathlib.Path(sys.argv[1]).read_text(), output_hook=show, timeout=None)
    # The kernel is still alive.
    client.execute_interactive("print('next cell', 6 * 7)", output_hook=show, timeout=60)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
sys.exit(bool(failed))
