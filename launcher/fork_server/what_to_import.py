# ---- imports of scripts (part of fork_server.py) ---------------------------------------------------------------------
#
# A plan is a list of steps that the script's first statements lead to, in their order:
#   ("import", MODULE, NAMES)         NAMES of `from MODULE import`
#   ("set", VARIABLE, VALUE, DEFAULT) an environment variable; DEFAULT: only if it is not set
#   ("path", INDEX, FOLDER)           inserted into sys.path; None: appended
#   ("warnings", FUNCTION, ARGUMENTS, KEYWORDS)
#   ("try", STEPS, STEPS, ERROR)      the second ones if an import of the first ones fails with this error
#   ("stop", PLACE)                   a statement that may change what later imports do

HARMLESS_CALLS = {
    "Path", "bool", "float", "int", "len", "logging.getLogger", "os.cpu_count", "os.environ.get", "os.getcwd",
    "os.getenv", "pathlib.Path", "str", "torch.device",
}  # fmt: skip
# They set what no import depends on.
HARMLESS_SETTINGS = {"torch.set_float32_matmul_precision", "torch.set_num_interop_threads", "torch.set_num_threads"}
PATH_FUNCTIONS = ("abspath", "dirname", "expanduser", "join", "normpath", "realpath")
ENVIRONMENT_METHODS = ("clear", "pop", "popitem", "setdefault", "update")


class Unknown(Exception):
    """A value that is not known before the script runs."""


def module_spec(name, path=None):
    """Finds a module without importing anything; None if there is none."""
    spec = None
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec


def module_file(name):
    """Returns the file that `python -m name` would run, found without importing anything; None if there is none."""
    spec = module_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.machinery.PathFinder.find_spec("__main__", spec.submodule_search_locations)
    return spec.origin if spec is not None else None


def is_source(script):
    """False for standard input, a folder, an archive or compiled code, all of which Python can run."""
    return script != "-" and not script.endswith(".pyc") and pkgutil.get_importer(script) is None


def dotted(node):
    """Returns the text of a name such as os.path.join; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        value = dotted(node.value)
        return value and f"{value}.{node.attr}"
    return ""


def is_pure(node):
    """True if evaluating this expression changes nothing."""
    if isinstance(node, (ast.Constant, ast.Name, ast.Lambda)) or node is None:
        return True
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if name not in HARMLESS_CALLS and not name.startswith("os.path."):
            return False
        return all(map(is_pure, node.args)) and all(is_pure(keyword.value) for keyword in node.keywords)
    kinds = (ast.Attribute, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare)
    kinds += (ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Starred, ast.Slice)
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return isinstance(node, kinds) and all(map(is_pure, parts))


def is_definition(node):
    """True for a function or class whose definition only names it."""
    if isinstance(node, ast.ClassDef):
        parts = node.bases + [keyword.value for keyword in node.keywords]
        harmless = (is_definition(part) or is_plain_assignment(part) or is_text(part) for part in node.body)
        return all(harmless) and all(map(is_decorator, node.decorator_list)) and all(map(is_pure, parts))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = node.args.defaults + node.args.kw_defaults
        return all(map(is_pure, defaults)) and all(map(is_decorator, node.decorator_list))
    return isinstance(node, ast.Pass)


def is_decorator(node):
    if isinstance(node, ast.Call):
        return dotted(node.func) != "" and all(map(is_pure, node.args + [k.value for k in node.keywords]))
    return dotted(node) != ""


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_plain_assignment(node):
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if not isinstance(part, ast.Name) and not dotted(part).startswith("torch.backends."):
                return False
    return is_pure(node.value)


def may_change_imports(code, body):
    """True if these statements of a module, run when it is imported, may set variables or change where modules are
    found."""
    waiting = [(node, code.definitions) for node in body if not is_main_test(node)]
    entered = set()  # functions and classes that are called
    while waiting:
        node, definitions = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += [(part, definitions) for part in getattr(node, "decorator_list", ())]
            continue
        name = dotted(node)
        if name == "sys.modules" or name.rpartition(".")[2] in ("putenv", "unsetenv", "addsitedir", "load_dotenv"):
            return True
        target = dotted(node.value) if isinstance(node, ast.Subscript) else name
        if target.endswith("environ") and target != name or target == "sys.path":
            if not isinstance(node.ctx, ast.Load):
                return True
        if isinstance(node, ast.Call):
            function = dotted(node.func)
            value, _, method = function.rpartition(".")
            if value.endswith("environ") and method in ENVIRONMENT_METHODS or value == "sys.path":
                return True
            called, owner = definitions.get(function, (None, None))
            if called is not None and called not in entered:
                entered.add(called)
                methods = called.body if isinstance(called, ast.ClassDef) else [called]
                waiting += [(part, owner) for method in methods for part in getattr(method, "body", ())]
        waiting += [(child, definitions) for child in ast.iter_child_nodes(node)]
    return False


def is_main_test(node):
    """True for `if __name__ == "__main__":`."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and dotted(test.left) == "__name__" and isinstance(test.ops[0], ast.Eq)


class Code:
    """A script or a module beside it whose statements are read."""

    def __init__(self, file, package, is_main):
        self.file = file
        self.package = package
        self.is_main = is_main
        with open(file, "rb") as opened:
            self.source = opened.read()
        self.body = ast.parse(self.source).body
        # Functions and classes that can be called, also those of modules beside the script, and their modules' own.
        self.definitions = {}
        for node in self.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.definitions[node.name] = node, self.definitions

    def place(self, node):
        line = self.source.splitlines()[node.lineno - 1].decode("utf-8", "replace").strip()
        return f"{os.path.basename(self.file)}:{node.lineno} ({line[:80]})"


class Plan:
    """The imports of a script's first statements, according to its text and that of the modules beside it."""

    def __init__(self, setup):
        self.steps = []
        self.sources = b""
        self.read = set()
        self.codes = {}  # the modules beside the script
        self.path = list(sys.path)
        self.local = {os.path.normpath(sys.path[0])}
        if not setup.automatic:
            self.steps = [("import", name, ()) for name in setup.modules]
            return
        try:
            file = module_file(setup.argv[0]) if setup.is_module else setup.argv[0]
            package = setup.argv[0] if setup.is_module else ""
            if file is not None and os.path.basename(file) != "__main__.py":
                package = package.rpartition(".")[0]
            code = Code(file, package, True)
            if package:
                self.follow(package, ())
        except (OSError, TypeError, SyntaxError, ValueError):
            return  # the workers will report it
        self.walk(code.body, code)

    def definitions_of(self, module):
        """Returns the definitions of a module beside the script; empty for others."""
        return self.codes[module].definitions if module in self.codes else {}

    def walk(self, body, code):
        """Adds the statements' steps. False after a step that stops."""
        self.sources += code.source if body is code.body else b""
        for i, node in enumerate(body):
            try:
                known = self.add(node, code)
            except Exception:  # Unknown, or one of its evaluation, which the workers will report
                known = False
            if known:
                continue
            if self.steps and self.steps[-1][0] == "stop":
                return False
            # The rest of a module beside the script is left to the workers, as long as it can't change other imports.
            if not code.is_main and body is code.body and not may_change_imports(code, body[i:]):
                return True
            self.steps.append(("stop", code.place(node)))
            return False
        return True

    def add(self, node, code):
        """Adds the steps of one statement. False if it may do something else, or after a step that stops."""
        if is_text(node) or is_definition(node) or is_plain_assignment(node):
            return True
        if isinstance(node, ast.Import):
            followed = all(self.follow(alias.name, ()) for alias in node.names)
            for alias in node.names:
                for name, definition in self.definitions_of(alias.name).items():
                    code.definitions[f"{alias.asname or alias.name}.{name}"] = definition
            return followed
        if isinstance(node, ast.ImportFrom):
            base = code.package.split(".")
            if node.level > len(base) or (node.level > 0 and not code.package):
                return False
            parts = base[: len(base) - node.level + 1] if node.level > 0 else []
            names = tuple(alias.name for alias in node.names if alias.name != "*")
            module = ".".join(parts + ([node.module] if node.module else []))
            followed = self.follow(module, names)
            for alias in node.names:
                for name, definition in self.definitions_of(module).items():
                    if alias.name in (name, "*"):
                        code.definitions[name if alias.name == "*" else alias.asname or name] = definition
            return followed
        if isinstance(node, ast.If):
            return self.walk(node.body if self.is_true(node, code) else node.orelse, code)
        if isinstance(node, ast.Try):
            return self.add_try(node, code)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            if dotted(node.targets[0].value) != "os.environ":
                return False
            key = node.targets[0].slice
            key = getattr(key, "value", key) if sys.version_info < (3, 9) else key
            return self.set_variable(evaluate(key, code), evaluate(node.value, code), False)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return self.add_call(node.value, code)
        return False

    def is_true(self, node, code):
        if dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return False
        if is_main_test(node):
            return code.is_main
        if isinstance(node.test, ast.Compare) and dotted(node.test.left) in ("sys.version_info", "sys.platform"):
            right = evaluate(node.test.comparators[0], code)
            left = sys.platform if dotted(node.test.left) == "sys.platform" else sys.version_info
            comparisons = {ast.Lt: left.__lt__, ast.LtE: left.__le__, ast.Gt: left.__gt__, ast.GtE: left.__ge__}
            comparisons.update({ast.Eq: left.__eq__, ast.NotEq: left.__ne__})
            compare = comparisons.get(type(node.test.ops[0]))
            if compare is not None and len(node.test.ops) == 1:
                return compare(right) is True
        raise Unknown

    def add_try(self, node, code):
        caught = {name for handler in node.handlers for name in self.caught(handler)}
        if not caught or caught - {"ImportError", "ModuleNotFoundError", "Exception"} or len(node.handlers) > 1:
            return False
        outer = self.steps
        parts = []
        for body in (node.body, node.handlers[0].body):
            self.steps = []
            self.walk(body, code)
            parts.append(self.steps)
        self.steps = outer
        # Where later modules are found would depend on it.
        if any(step[0] == "stop" for step in parts[0]) or any(step[0] == "path" for part in parts for step in part):
            return False
        self.steps.append(("try", *parts, Exception if "Exception" in caught else ImportError))
        return self.walk(node.orelse, code) and self.walk(node.finalbody, code)

    @staticmethod
    def caught(handler):
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        return [dotted(kind) if kind is not None else "Exception" for kind in types]

    def add_call(self, call, code):
        name = dotted(call.func)
        if name in HARMLESS_SETTINGS:
            return all(map(is_pure, call.args))
        if name not in ("os.environ.setdefault", "os.environ.update", "sys.path.append", "sys.path.insert") and (
            name not in ("warnings.filterwarnings", "warnings.simplefilter")
        ):
            return False
        arguments = [evaluate(argument, code) for argument in call.args]
        keywords = {keyword.arg: evaluate(keyword.value, code) for keyword in call.keywords}
        if None in keywords:
            return False
        if name == "os.environ.setdefault":
            return len(arguments) == 2 and self.set_variable(*arguments, True)
        if name == "os.environ.update":
            variables = {**dict(*arguments), **keywords}
            return all(self.set_variable(variable, value, False) for variable, value in variables.items())
        if name.startswith("warnings."):
            self.steps.append(("warnings", name.partition(".")[2], arguments, keywords))
            return True
        if len(arguments) != (1 if name == "sys.path.append" else 2) or not isinstance(arguments[-1], str):
            return False
        index = None if name == "sys.path.append" else int(arguments[0])
        self.steps.append(("path", index, arguments[-1]))
        self.local.add(os.path.normpath(arguments[-1]))
        self.path.insert(len(self.path) if index is None else index, arguments[-1])
        return True

    def set_variable(self, name, value, default):
        if not isinstance(name, str) or not isinstance(value, str) or name in RANK_VARIABLES:
            return False
        self.steps.append(("set", name, value, default))
        return True

    def follow(self, name, names):
        """Adds the import of a module; the imports of one that is beside the script. False after a step that stops."""
        top = name.partition(".")[0]
        spec = module_spec(top, self.path) if top not in sys.builtin_module_names else None
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        locations = folders or ([spec.origin] if spec is not None and spec.origin else [])
        if not any(os.path.normpath(os.path.dirname(location) or ".") in self.local for location in locations):
            self.steps.append(("import", name, names))
            return True
        parts = name.split(".")
        modules = [".".join(parts[: i + 1]) for i in range(len(parts))] + [f"{name}.{part}" for part in names]
        return all(self.read_module(module) for module in modules)

    def read_module(self, name):
        spec = module_spec(name, self.path)
        if spec is None or name in self.read:
            return True  # a name that is no module
        self.read.add(name)
        if spec.origin is None:
            return True  # a folder without __init__.py
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        try:
            if not spec.origin.endswith(".py"):
                raise ValueError
            code = self.codes[name] = Code(spec.origin, package, False)
        except (OSError, SyntaxError, ValueError):
            self.steps.append(("stop", f"the import of {spec.origin}"))
            return False
        return self.walk(code.body, code)


def evaluate(node, code):
    """Returns the value of an expression of literals and paths. Raises Unknown for others."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(evaluate(part, code) for part in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {evaluate(key, code): evaluate(value, code) for key, value in zip(node.keys, node.values)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -evaluate(node.operand, code)
    name = dotted(node)
    if name == "__file__":
        return os.path.abspath(code.file) if code.is_main and sys.version_info >= (3, 9) else code.file
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Warning):
        return kind
    if isinstance(node, ast.Call) and not node.keywords:
        arguments = [evaluate(argument, code) for argument in node.args]
        name = dotted(node.func)
        if name == "os.getcwd":
            return os.getcwd()
        module, _, function = name.rpartition(".")
        if module == "os.path" and function in PATH_FUNCTIONS and all(isinstance(text, str) for text in arguments):
            return getattr(os.path, function)(*arguments)
        if name in ("Path", "pathlib.Path"):
            return pathlib.Path(*arguments)
        if name == "str" and len(arguments) == 1 and isinstance(arguments[0], (str, pathlib.Path)):
            return str(arguments[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("absolute", "resolve") and not arguments:
            return getattr(path_of(node.func.value, code), node.func.attr)()
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        return path_of(node.value, code).parent
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return path_of(node.left, code) / evaluate(node.right, code)
    raise Unknown


def path_of(node, code):
    path = evaluate(node, code)
    if not isinstance(path, pathlib.Path):
        raise Unknown
    return path
