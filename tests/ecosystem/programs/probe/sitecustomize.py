"""Reports the steps of an unmodified program as ../common.py does: a step ends when an optimizer's step returns."""
import os
import sys


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            import common

            steps = 0

            def count(*_):
                nonlocal steps
                steps += 1
                common.step_done(steps)

            module.register_optimizer_step_post_hook(count)

        spec.loader.exec_module = exec_module
        return spec


if "RANK" in os.environ and "ECOSYSTEM_OUT" in os.environ:
    sys.meta_path.insert(0, Finder())
