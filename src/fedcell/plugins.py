"""Users' modules, named ``module:Class``: how they are imported, and their code as a hash.

A run's key counts the hash, so that changed code runs again.

Code in files counts with these files: that of the class, those of its bases, and the modules of one's own that they
import, and so on; not what is installed in the environment. They count as they were when they were first asked about
after they were imported or reloaded: the code that runs is the code that was imported. A value that the code reads and
that its file does not say counts as it is: a constant that was assigned anew (``mine.K = 9``), and in a script whatever
is no constant, such as an option of its command line.

Code that was typed in, into a notebook or an interpreter, has no file. It counts as it is now: the compiled functions
of the class, and whatever of its module they refer to, functions, classes and values alike. A value that cannot be told
by its content, such as an open file, leaves the code without a hash, and `OwnCode.unknown` says so.
"""

import ast
import dis
import functools
import hashlib
import inspect
import logging
import os
import site
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path, PurePath
from re import Pattern
from types import CodeType, FunctionType, GenericAlias, MethodType, ModuleType, UnionType
from typing import Any

import numpy as np

from fedcell.errors import InputError

_forbidden: ContextVar[str] = ContextVar("forbidden", default="")
"""Why nothing may be imported now, and how it is asked for; empty where it may be."""


@contextmanager
def without_imports(advice: str = "it is not imported to look at a file") -> Iterator[None]:
    """Import no module of anybody's own, for whoever looks at a foreign file; ``advice``: how to ask for it."""
    token = _forbidden.set(advice)
    try:
        yield
    finally:
        _forbidden.reset(token)


def may_import() -> bool:
    """Whether modules of one's own may be imported here; see `without_imports`."""
    return not _forbidden.get()


def import_own(module: str) -> ModuleType:
    """Import a module that the user names: an installed one, or a file in the current directory.

    The directory is searched after all others, and not before somebody names a module: so a file in it called
    ``random.py``, or called like a package that others import if it is there, hides nothing from anybody.

    Args:
        module: such as ``mine`` for ``mine.py``, or ``package.module``.
    """
    if not may_import():
        raise InputError(f"{module!r} is user-defined code; {_forbidden.get()}")
    if "" not in sys.path:
        sys.path.append("")
    return import_module(module)


def load_own(what: str, module: str, name: str) -> Any:
    """What a module of one's own calls by this name; ``what``: the setting, for messages."""
    try:
        found = import_own(module)
    except ImportError as error:
        raise InputError(f"{what}: cannot import {module!r} ({error})") from None
    if hasattr(found, name):
        return getattr(found, name)
    here = Path(*module.split(".")).with_suffix(".py")
    there = getattr(found, "__file__", None) or "built into Python"
    if here.exists() and not (Path(there).exists() and here.samefile(there)):
        raise InputError(f"{what}: {module!r} is {there}, which hides {here} in this directory; rename yours")
    raise InputError(f"{what}: module {module!r} has no {name!r}")


MAIN = ("__main__", "__mp_main__")
"""What a script is called, and what it is called in its worker processes."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice)
_BY_TEXT: tuple[type, ...] = (*_PLAIN, date, datetime, time, timedelta, Decimal, Fraction)
_TOLD_BY_REPR = (PurePath, Pattern, np.dtype, logging.Logger, GenericAlias, UnionType)
_NAMESPACES = (("types", "SimpleNamespace"), ("argparse", "Namespace"))
_NOT_FOLLOWED = ("eval", "exec", "globals", "__import__")
_CHANGES = frozenset(("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "clear"))
_OF_NO_WEIGHT = frozenset(
    [
        "__module__",
        "__qualname__",
        "__dict__",
        "__weakref__",
        "__doc__",
        "__abstractmethods__",
        "_abc_impl",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotate__",
        "__annotations_cache__",
    ]
)
"""Of a class: what says nothing of what it does, or is told otherwise."""


@dataclass(frozen=True)
class OwnCode:
    """What decides the code of a run, besides fedcell.

    Attributes:
        sha256: its hash, in hex; empty if all of it is fedcell's, or if it has none.
        unknown: why it has none; empty if it has.
        typed: what of it was typed in or assigned anew, so that only this process has it; empty if all is in files.
    """

    sha256: str = ""
    unknown: str = ""
    typed: str = ""


class UnknownCodeError(InputError):
    """Code of one's own has no hash, so a run of it has no key."""


def code_of(policy: type, model: str, *others: type) -> OwnCode:
    """What decides a user's own policy (with its base classes), model (``module:function``) and further classes."""
    things = [base for kind in (policy, *others) for base in kind.__mro__ if _is_own(base)] + _functions(model)
    if not things:
        return OwnCode()
    typed = next((f"{_module_name(thing)}:{thing.__name__}" for thing in things if is_typed(thing)), "")
    walk, sources, roots = _Walk(), list[str](), list[str]()
    try:
        for thing in things:
            if is_typed(thing):
                sources.append(walk.told(thing))
            else:
                sources.append(_file_code(_module_name(thing)).sha256)
                roots.append(_module_name(thing))
        assigned = sorted(_values_not_in_files(things))
    except _UnknownError as error:
        return OwnCode("", str(error), typed)
    imported = _imported([*roots, *walk.modules]) | {name: _file_code(name) for name in walk.modules}
    sources += [f"{name} {code.sha256}" for name, code in sorted(imported.items()) if name not in roots]
    for name, told, is_constant in assigned:
        sources.append(f"{name} {told}")
        typed = typed or (name if is_constant else "")
    return OwnCode(hashlib.sha256(" ".join(sources).encode()).hexdigest(), "", typed)


def is_typed(thing: Any) -> bool:
    """Whether a class or function was typed in, wholly or in part, and is in no file."""
    if not _file_of(thing if isinstance(thing, ModuleType) else sys.modules.get(thing.__module__)):
        return True
    return any(not _is_file(code.co_filename) for code in _codes_of(thing))


def _codes_of(thing: Any) -> Iterator[CodeType]:
    """The code of a function or of a class's own ones, but for what dataclass wrote."""
    for value in vars(thing).values() if isinstance(thing, type) else [thing]:
        code = _code_of(value)
        if code is not None and not _is_generated(code):
            yield code


def _code_of(value: Any) -> CodeType | None:
    """The code of a function, or of what a decorator wraps; None for anything else."""
    function = _function_of(value)
    return function.__code__ if function is not None else None


def _function_of(value: Any) -> FunctionType | None:
    """A function, or the one of a method or property, or that a decorator wraps; None for anything else."""
    function = getattr(value, "fget", getattr(value, "__func__", value))
    function = inspect.unwrap(function) if callable(function) and not isinstance(function, type) else None
    return function if isinstance(function, FunctionType) else None


def _is_generated(code: CodeType) -> bool:
    """Whether dataclass wrote it; the fields say all of it."""
    return code.co_qualname.startswith("__create_fn__.")


def _is_own(thing: Any) -> bool:
    root = str(getattr(thing, "__module__", "")).partition(".")[0]
    return root in MAIN or not (root == "fedcell" or root in sys.stdlib_module_names)


def _functions(model: str) -> list[Any]:
    """The function that makes the model, if it is a user's; a run with one that cannot be imported will say why."""
    module, colon, name = model.partition(":")
    if not colon:
        return []
    try:
        found = getattr(import_own(module), name)
        return [found if isinstance(found, type | FunctionType) else import_own(module)]
    except Exception:
        return []


# --- code in files -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FileCode:
    """A module as it was imported.

    Attributes:
        version: is another object, or another value, once the module was loaded again.
        sha256: of the file.
        imports: names of modules of one's own that it imports, or might.
        constants: the values that it gives to names of its own, once and as they stand, such as ``K = 3``.
        changed: the names that its functions declare as ``global``, to change them.
    """

    version: Any
    sha256: str
    imports: tuple[str, ...]
    constants: dict[str, Any]
    changed: frozenset[str]


_known: dict[str, _FileCode] = {}
"""By the name of a module: files are read once, not for each of 100,000 runs."""


def _module_name(thing: Any) -> str:
    module = inspect.getmodule(thing)
    return module.__name__ if module is not None else str(thing.__module__)


def _file_code(name: str) -> _FileCode:
    """The code of a module that has a file."""
    file, version = _place(name)
    known = _known.get(name)
    if known is not None and (known.version is version or (type(version) is tuple and known.version == version)):
        return known
    try:
        with open(file, "rb") as opened:
            content = opened.read()
    except OSError:
        content = b""
    tree = _tree(content)
    found = _FileCode(version, hashlib.sha256(content).hexdigest(), tuple(_imports(tree, name)), *_constants(tree))
    _known[name] = found
    return found


def _place(name: str) -> tuple[str, Any]:
    """A module's file, empty if there is none, and the version of it that is loaded or will be."""
    module = sys.modules.get(name)
    if module is not None:
        spec = getattr(module, "__spec__", None)
        return _file_of(module), spec if spec is not None else module  # importlib.reload makes another spec
    file = _found(name, os.getcwd(), *sys.path)
    try:
        stat = os.stat(file)
    except OSError:
        return "", None
    return file, (stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=1024)
def _found(name: str, *_where: str) -> str:
    """The file of a module that is not imported yet; empty if there is none. Nothing is imported to find it."""
    parent, _, _ = name.rpartition(".")
    try:
        if not parent:
            spec = PathFinder.find_spec(name)
        else:
            file = _place(parent)[0]
            inside = os.path.basename(file).startswith("__init__.")
            spec = PathFinder.find_spec(name, [os.path.dirname(file)]) if inside else None
    except (ImportError, ValueError):
        return ""
    return spec.origin or "" if spec is not None and spec.has_location else ""


def _file_of(module: ModuleType | None) -> str:
    file = str(getattr(module, "__file__", None) or "")
    return file if file and os.path.isfile(file) else ""


def _imported(roots: Iterable[str]) -> dict[str, _FileCode]:
    """The modules of one's own that these modules import, and those that they import, by name."""
    found, left = dict[str, _FileCode](), [name for root in roots for name in _file_code(root).imports]
    while left:
        name = left.pop()
        if name not in found and _is_own_module(name):
            found[name] = _file_code(name)
            left += found[name].imports
    return found


def _is_own_module(name: str) -> bool:
    """Whether a module has a file that is not the environment's."""
    if name.partition(".")[0] in sys.stdlib_module_names | {"fedcell"}:
        return False
    file = _place(name)[0]
    return bool(file) and not _in_environment(file)


def _tree(content: bytes) -> ast.Module:
    """A source, empty for a compiled extension."""
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _constants(tree: ast.Module) -> tuple[dict[str, Any], frozenset[str]]:
    """The `_FileCode.constants` and `_FileCode.changed` of a source."""
    found, bound = dict[str, Any](), list[str]()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        stored = (one for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
        bound += [one.id for one in stored]
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            with suppress(ValueError, TypeError, MemoryError, RecursionError):
                found[bound[-1] if bound else ""] = ast.literal_eval(statement.value)
    changed = frozenset(name for one in ast.walk(tree) if isinstance(one, ast.Global) for name in one.names)
    return {name: found[name] for name in found if bound.count(name) == 1}, changed


def _values_not_in_files(things: Iterable[Any]) -> Iterator[tuple[str, str, bool]]:
    """What code reads of modules with files and their files do not say: name, text, and whether they say another."""
    left, met = list(things), set[int]()
    while left:
        thing = left.pop()
        if id(thing) in met:
            continue
        met.add(id(thing))
        for function in vars(thing).values() if isinstance(thing, type) else [thing]:
            for module, name, value in _read(function):
                if isinstance(value, type | FunctionType):
                    left += [value] if _is_own(value) else []
                    if value.__module__ in MAIN and module not in MAIN:  # put there in place of what the file says
                        yield f"{module}:{name}", _Walk().told(value), True
                elif (told := _not_in_file(module, name, value)) is not None:
                    yield f"{module if module not in MAIN else ''}:{name}", told, name in _file_code(module).constants


def _read(thing: Any) -> Iterator[tuple[str, str, Any]]:
    """The globals that a function of one's own may read, with their modules: its own and those that it imports.

    Of what was typed in, functions and classes alone are given: the rest of what it reads is told with it.
    """
    function = _function_of(thing)
    typed = function is not None and is_typed(function)
    if function is None or not (typed or _is_own_module(str(function.__module__))):
        return
    names, ours = _names(function.__code__), function.__globals__
    for name in names & ours.keys():
        value = ours[name]
        if not isinstance(value, ModuleType):
            if not typed or isinstance(value, type | FunctionType):
                yield str(ours["__name__"]), name, value
        elif _is_own_module(value.__name__):
            yield from ((value.__name__, one, vars(value)[one]) for one in names & vars(value).keys())


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes in a piece of code, and in those within it."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*inner)


def _not_in_file(module: str, name: str, value: Any) -> str | None:
    """A value as a text, if it is not what the file of its module says; None otherwise, and for what has no hash."""
    code = _file_code(module)
    if name in code.changed or name[:2] == "__" or (name not in code.constants and module not in MAIN):
        return None
    try:
        told = _Walk().told(value)
        return None if name in code.constants and told == _Walk().told(code.constants[name]) else told
    except _UnknownError:
        return None


def _imports(tree: ast.Module, name: str) -> Iterator[str]:
    """The modules that a source may import, wherever it does, but for those of the environment."""
    module = sys.modules.get(name)
    package = str(getattr(module, "__package__", None) or name.rpartition(".")[0])
    seen = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            wanted = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for one in _with_parents(wanted):
            if one not in seen and (_is_own_module(one) or not _place(one)[0]) and not _is_environments(one):
                seen.add(one)
                yield one


def _with_parents(names: Iterable[str]) -> Iterator[str]:
    """A package's module and, before it, the packages that importing it imports."""
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[: n + 1]) for n in range(len(parts)) if parts[0])


def _is_environments(name: str) -> bool:
    """Whether a module belongs to Python, to fedcell or to something installed, by the name of its package."""
    root = name.partition(".")[0]
    return root in sys.stdlib_module_names or root == "fedcell" or _in_environment(_place(root)[0])


@functools.lru_cache(maxsize=4096)
def _in_environment(file: str) -> bool:
    if not file:
        return False
    real = os.path.realpath(file)
    installed = {"site-packages", "dist-packages"}
    return real.startswith(_environment()) or not installed.isdisjoint(real.split(os.sep))


@functools.cache
def _environment() -> tuple[str, ...]:
    """The directories of Python and of what is installed."""
    paths = sysconfig.get_paths()
    places = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(os.path.realpath(place) + os.sep for place in places)


@functools.lru_cache(maxsize=4096)
def _is_file(name: str) -> bool:
    return os.path.isfile(name)


# --- code that was typed in ----------------------------------------------------------------------------------------


class _UnknownError(Exception):
    """Something in the code has no hash."""


@dataclass(frozen=True)
class _CodeFacts:
    """What a piece of compiled code says by itself.

    Attributes:
        told: of its instructions and constants.
        globals: the names that it looks up in its module.
        imports: the modules that it imports.
        calls: methods that it calls of globals, by which lists and the like are changed: the global, the method.
    """

    told: str
    globals: tuple[str, ...]
    imports: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]


@functools.lru_cache(maxsize=4096)
def _facts(code: CodeType) -> _CodeFacts:
    """Read a piece of code, and those within it."""
    names, imports, calls, inner = dict[str, None](), dict[str, None](), list[tuple[str, str]](), list[str]()
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise _UnknownError(f"{code.co_name} changes the global {one.argval}")
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[one.argval] = None
        if one.opname == "IMPORT_NAME":
            if one.argval.partition(".")[0] in MAIN:
                raise _UnknownError(f"{code.co_name} imports {one.argval}, of which it may read anything")
            imports[one.argval] = None
        if one.opname == "IMPORT_FROM" and imports:
            imports[f"{list(imports)[-1]}.{one.argval}"] = None
        called = one.opname in ("LOAD_METHOD", "LOAD_ATTR") and one.argval in _CHANGES
        if called and before is not None and before.opname == "LOAD_GLOBAL":
            calls.append((before.argval, one.argval))
        before = one
    if forbidden := names.keys() & set(_NOT_FOLLOWED):
        raise _UnknownError(f"{code.co_name} calls {min(forbidden)}, which may run anything")
    constants = _Walk()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            facts = _facts(constant)
            inner.append(facts.told)
            names |= dict.fromkeys(facts.globals)
            imports |= dict.fromkeys(facts.imports)
            calls += facts.calls
        else:
            inner.append(constants.told(constant))
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    parts = (code.co_name, counts, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    told = hashlib.sha256(repr((parts, code.co_exceptiontable, inner)).encode()).hexdigest()
    return _CodeFacts(told, tuple(names), tuple(imports), tuple(calls))


class _Walk:
    """Tells values, functions and classes by what they are, with all that they refer to, own ``modules`` among it."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self._met: dict[int, tuple[int, Any]] = {}  # the objects are kept, or their ids would be given to others

    def told(self, value: Any) -> str:
        """A text that is the same for the same content."""
        return hashlib.sha256("\n".join(self._parts(value)).encode()).hexdigest()

    def _parts(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if kind in _BY_TEXT:
            yield f"{kind.__name__} {value!r}"
        elif id(value) in self._met:  # seen before, or within itself
            yield f"again {self._met[id(value)][0]}"
        else:
            self._met[id(value)] = len(self._met), value
            yield from self._content(value, kind)

    def _many(self, what: str, values: Iterable[Any]) -> Iterator[str]:
        yield f"{what} of"
        for value in values:
            yield from self._parts(value)
        yield "end"

    def _content(self, value: Any, kind: type) -> Iterator[str]:
        if kind in (list, tuple):
            yield from self._many(kind.__name__, value)
        elif kind is dict:
            yield from self._many("dict", (part for item in value.items() for part in item))
        elif kind in (set, frozenset):
            yield from self._many("set", sorted(_Walk().told(one) for one in value))
        elif isinstance(value, np.ndarray | np.generic):
            yield from self._array(np.asarray(value), kind)
        elif isinstance(value, type):
            yield from self._class(value)
        elif kind is FunctionType:
            yield from self._function(value)
        elif isinstance(value, ModuleType):
            yield from self._module(value)
        elif isinstance(value, MethodType):
            yield from self._many("method", [value.__func__, value.__self__])
        elif kind is functools.partial:
            yield from self._many("partial", [value.func, value.args, value.keywords])
        elif kind in (staticmethod, classmethod):
            yield from self._many(kind.__name__, [value.__func__])
        elif kind is property:
            yield from self._many("property", [value.fget, value.fset, value.fdel])
        elif callable(inner := getattr(value, "__wrapped__", getattr(value, "py_func", None))):
            yield from self._many(f"{kind.__name__}", [inner])  # a cache, or what Numba compiled
        elif isinstance(value, np.ufunc) or inspect.isroutine(value):
            yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
        elif isinstance(value, Enum):
            yield from self._many(f"member {value.name}", [kind])
        elif isinstance(value, _TOLD_BY_REPR) or kind.__module__ == "typing":
            yield f"{kind.__name__} {value!r}"
        elif (kind.__module__, kind.__name__) in _NAMESPACES:
            yield from self._many(kind.__name__, [vars(value)])
        else:
            yield from self._object(value, kind)

    def _array(self, array: np.ndarray[Any, Any], kind: type) -> Iterator[str]:
        if array.dtype.hasobject:
            raise _UnknownError("an array of Python objects has no hash")
        content = np.ascontiguousarray(array)
        yield f"{kind.__name__} {array.dtype.str} {array.shape} {hashlib.sha256(content.tobytes()).hexdigest()}"

    def _module(self, module: ModuleType) -> Iterator[str]:
        yield f"module {module.__name__}"
        if module.__name__ in MAIN or not (_file_of(module) or module.__name__ in sys.modules):
            raise _UnknownError(f"the module {module.__name__} has no file")
        self._count(module.__name__)

    def _count(self, name: str) -> None:
        """Note a module, if it is one of one's own."""
        if name not in self.modules and _is_own_module(name):
            self.modules.append(name)

    def _is_named(self, thing: Any) -> bool:
        """Whether a class or function is in a file, so that its name and the file say all."""
        if _is_own(thing) and is_typed(thing):
            return False
        self._count(str(thing.__module__))
        return True

    def _class(self, kind: type) -> Iterator[str]:
        yield f"class {kind.__module__ if kind.__module__ not in MAIN else ''}:{kind.__qualname__}"
        if self._is_named(kind):
            return
        yield from self._many("bases", kind.__bases__)
        if _is_own(type(kind)) and is_typed(type(kind)):
            yield from self._many("metaclass", [type(kind)])
        if "__dataclass_params__" in vars(kind):
            yield repr(vars(kind)["__dataclass_params__"])
            for one in fields(kind):
                yield from self._many(f"field {one.name}", _of_field(one))
        for name, value in sorted(vars(kind).items()):
            code, slot = _code_of(value), inspect.ismemberdescriptor(value) or inspect.isgetsetdescriptor(value)
            if name not in _OF_NO_WEIGHT and not slot and not (code is not None and _is_generated(code)):
                yield name
                yield from self._parts(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield f"function {function.__name__}"
        if self._is_named(function):
            yield f"{function.__module__}:{function.__qualname__}"
            if _in_environment(_place(function.__module__)[0]):
                return
        yield from self._many("defaults", [function.__defaults__, function.__kwdefaults__, vars(function)])
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not yet
                yield "an empty cell"
            else:
                yield from self._parts(content)
        if not self._is_named(function):
            yield from self._code(function)

    def _code(self, function: FunctionType) -> Iterator[str]:
        facts = _facts(function.__code__)
        yield facts.told
        for name in _with_parents(facts.imports):
            self._count(name)
        for name, method in facts.calls:
            if isinstance(function.__globals__.get(name), list | dict | set | deque | bytearray):
                raise _UnknownError(f"{function.__name__} changes the global {name} ({name}.{method})")
        builtins: Any = function.__globals__.get("__builtins__", {})
        known = builtins if isinstance(builtins, dict) else vars(builtins)
        for name in facts.globals:
            yield f"global {name}"
            if name in function.__globals__:
                yield from self._global(name, function.__globals__[name])
            elif name not in known:
                yield "missing"

    def _global(self, name: str, value: Any) -> Iterator[str]:
        try:
            yield from self._parts(value)
        except _UnknownError as error:
            if not str(error).endswith("has no hash"):
                raise
            raise _UnknownError(f"the value of its global {name} cannot be told: {error}") from None

    def _object(self, value: Any, kind: type) -> Iterator[str]:
        """Something that a user, or fedcell, has a class for: its class and its attributes."""
        ours = kind.__module__.partition(".")[0] == "fedcell"
        if not (ours or (_is_own(kind) and not _in_environment(_place(kind.__module__)[0]))):
            raise _UnknownError(f"{kind.__module__}.{kind.__qualname__} has no hash")
        yield from self._many("object", [kind])
        slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        there = {name: getattr(value, name) for name in slots if hasattr(value, name) and name[:2] != "__"}
        yield from self._parts(getattr(value, "__dict__", {}) | there)


def _of_field(one: "Field[Any]") -> list[Any]:
    """What decides a field of a dataclass."""
    default, factory = ("missing" if value is MISSING else [value] for value in (one.default, one.default_factory))
    kind = one.type if isinstance(one.type, type | str) else repr(one.type)
    return [kind, default, factory, one.init, one.compare, dict(one.metadata), one.kw_only]
