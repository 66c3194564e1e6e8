"""The compiler of the CUDA programs: the cache of machine code, and that NVRTC compiles every program."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

import pytest
import torch
from support.emulated_gpu import forget_programs
from support.nvrtc import PACKAGE, load_nvrtc

from cwrnn import Schedule
from cwrnn.cache_folder import find_cache_folder
from cwrnn.cells import CELLS
from cwrnn.kernels.gpu import compiler, driver, gradients, scan, small, stepping
from cwrnn.kernels.gpu.compiler import VARIABLE, compile_program

CONSTANTS = (("ELEMENT", 0), ("WARPS", 4), ("UNUSED", 5))
HOPPER = (9, 0)


class FakeCompiler:
    """Counts how often it compiles; the "machine code" tells what it was made from."""

    version = 13, 0

    def __init__(self, monkeypatch):
        self.compiled = []
        monkeypatch.setattr(compiler, "load_compiler", lambda: self)
        monkeypatch.setattr(compiler, "_list_architectures", lambda compiler: [80, 90])
        monkeypatch.setattr(compiler, "_find_version", lambda compiler: self.version)
        monkeypatch.setattr(compiler, "compile_job", self.compile)

    def compile(self, job):
        self.compiled.append((job.names[0], job.options, job.kind))
        return repr((*self.compiled[-1], len(self.compiled))).encode(), ""


@pytest.fixture
def fake(monkeypatch):
    return FakeCompiler(monkeypatch)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own for every test."""
    folder = tmp_path / "a" / "cache"
    monkeypatch.setenv(VARIABLE, str(folder))
    compiler._find_folder.cache_clear()
    yield folder
    compiler._find_folder.cache_clear()


def test_a_program_is_compiled_once(fake, folder):
    code = compile_program("pack.cu", CONSTANTS, HOPPER)
    assert compile_program("pack.cu", CONSTANTS, HOPPER) == code
    assert len(fake.compiled) == 1
    [file] = folder.iterdir()
    assert file.read_bytes().endswith(code)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_a_program_is_compiled_once_whatever_the_umask_allows(fake, folder, umask):
    usual = os.umask(umask)
    try:
        for _ in range(2):
            compile_program("pack.cu", CONSTANTS, HOPPER)
    finally:
        os.umask(usual)
    assert len(fake.compiled) == 1
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_constants_that_no_source_reads_make_no_other_program(fake):
    code = compile_program("pack.cu", CONSTANTS, HOPPER)
    assert compile_program("pack.cu", (*CONSTANTS[:2], ("UNUSED", 6)), HOPPER) == code
    [(_, options, _)] = fake.compiled
    assert "-DWARPS=4" in options
    assert not any("UNUSED" in option for option in options)


@pytest.mark.parametrize("change", ["constant", "device", "version", "source", "file"])
def test_whatever_the_code_depends_on_makes_another_program(fake, monkeypatch, tmp_path, change):
    code = compile_program("pack.cu", CONSTANTS, HOPPER)
    file, constants, capability = "pack.cu", CONSTANTS, HOPPER
    if change == "constant":
        constants = (("ELEMENT", 1), *CONSTANTS[1:])
    elif change == "device":
        capability = (8, 0)
    elif change == "version":
        fake.version = 13, 1
    elif change == "source":
        changed = tmp_path / "cuda"
        changed.mkdir()
        for source in compiler.FOLDER.iterdir():
            (changed / source.name).write_text(source.read_text() + "\n" * (source.name == "primitives.cuh"))
        monkeypatch.setattr(compiler, "FOLDER", changed)
    else:
        file = "drive.cu"
    assert compile_program(file, constants, capability) != code
    assert compile_program("pack.cu", CONSTANTS, HOPPER) != code or change in ("constant", "device", "file")


def test_a_device_that_the_compiler_does_not_know_gets_ptx(fake):
    for capability in ((8, 0), (8, 9), (12, 0)):
        compile_program("pack.cu", CONSTANTS, capability)
    assert [(options[0], kind) for _, options, kind in fake.compiled] == [
        ("--gpu-architecture=sm_80", "CUBIN"),
        ("--gpu-architecture=compute_80", "PTX"),
        ("--gpu-architecture=compute_90", "PTX"),
    ]


@pytest.mark.parametrize("damage", [b"", b"short", "cut", "flipped", "renamed"])
def test_a_damaged_file_is_compiled_anew(fake, folder, damage):
    compile_program("pack.cu", CONSTANTS, HOPPER)
    [file] = folder.iterdir()
    content = file.read_bytes()
    if damage == "renamed":
        compile_program("drive.cu", CONSTANTS, HOPPER)
        [other] = set(folder.iterdir()) - {file}
        other.replace(file)
    else:
        file.write_bytes({"cut": content[:-1], "flipped": content[:-1] + b"?"}.get(damage, damage))
    before = len(fake.compiled)
    code = compile_program("pack.cu", CONSTANTS, HOPPER)
    assert len(fake.compiled) == before + 1
    assert compile_program("pack.cu", CONSTANTS, HOPPER) == code
    assert len(fake.compiled) == before + 1


def test_an_empty_variable_keeps_nothing(fake, folder, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        compile_program("pack.cu", CONSTANTS, HOPPER)
    assert len(fake.compiled) == 2
    assert list(tmp_path.iterdir()) == []


def test_without_the_variable_the_users_cache_is_taken(fake, monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compile_program("pack.cu", CONSTANTS, HOPPER)
    assert len(list((tmp_path / "cwrnn" / "cuda").iterdir())) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_in_which_others_may_write_is_left_alone(fake, folder, mode):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    for _ in range(2):
        compile_program("pack.cu", CONSTANTS, HOPPER)
    assert len(fake.compiled) == 2
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_folder_of_somebody_else_is_left_alone(fake, folder, monkeypatch):
    folder.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    compile_program("pack.cu", CONSTANTS, HOPPER)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_file_that_others_may_write_is_compiled_anew(fake, folder):
    code = compile_program("pack.cu", CONSTANTS, HOPPER)
    [file] = folder.iterdir()
    file.chmod(0o664)
    assert compile_program("pack.cu", CONSTANTS, HOPPER) != code
    assert len(fake.compiled) == 2


def test_relative_folders_stay_where_they_were(fake, monkeypatch, tmp_path):
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "kept")
    compile_program("pack.cu", CONSTANTS, HOPPER)
    monkeypatch.chdir(tmp_path / "later")
    compile_program("drive.cu", CONSTANTS, HOPPER)
    assert len(list((tmp_path / "kept").iterdir())) == 2
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert find_cache_folder("cuda") == tmp_path / ".cache" / "cwrnn" / "cuda"


def test_threads_that_want_the_same_program_compile_it_once(fake, monkeypatch):
    second_came = Event()

    class WatchedLock:
        """Tells when a thread has to wait."""

        def __init__(self):
            self.lock = Lock()

        def __enter__(self):
            if not self.lock.acquire(blocking=False):
                second_came.set()
                self.lock.acquire()

        def __exit__(self, *error):
            self.lock.release()

    def compile_late(job):
        """The first thread ends only when the second has come: to the lock, or to the compiler."""
        code = fake.compile(job)
        if len(fake.compiled) > 1:
            second_came.set()
        assert second_came.wait(60)
        return code

    monkeypatch.setattr(compiler, "_locks", {})
    monkeypatch.setattr(compiler, "Lock", WatchedLock)
    monkeypatch.setattr(compiler, "compile_job", compile_late)
    with ThreadPoolExecutor(2) as threads:
        codes = set(threads.map(lambda _: compile_program("pack.cu", CONSTANTS, HOPPER), range(2)))
    assert len(codes) == len(fake.compiled) == 1


@pytest.mark.parametrize("obstacle", ["a file", "a full disk"])
def test_a_cache_that_cannot_be_written_is_no_error(fake, folder, monkeypatch, obstacle):
    if obstacle == "a file":
        folder.parent.mkdir()
        folder.write_text("")
    else:

        def refuse(contents, private):
            raise OSError("no space left on device")

        monkeypatch.setattr(compiler, "write_files", refuse)
    for _ in range(2):
        compile_program("pack.cu", CONSTANTS, HOPPER)
    assert len(fake.compiled) == 2


COPRIME, FULL, LARGE = Schedule((2, 3, 7), (33, 130, 5)), Schedule.exponential(256, 4), Schedule((1, 2), (512, 256))
NETWORKS = [
    pytest.param(FULL, "tanh", torch.bfloat16, 1, 1, id="tanh-bfloat16"),
    pytest.param(COPRIME, "relu", torch.float16, 1, 1, id="relu-float16-coprime"),
    pytest.param(LARGE, "tanh", torch.float32, 3, 4, id="tanh-float32-turns"),
    pytest.param(LARGE, "tanh", torch.bfloat16, 1, 2, id="tanh-bfloat16-turns"),
    pytest.param(COPRIME, "lstm", torch.bfloat16, 1, 1, id="lstm-bfloat16-coprime"),
    pytest.param(LARGE, "lstm", torch.float32, 1, 2, id="lstm-tf32-turns"),
    pytest.param(COPRIME, "gru", torch.float32, 3, 1, id="gru-float32-coprime"),
    pytest.param(FULL, "gru", torch.float16, 1, 1, id="gru-float16"),
]


@pytest.fixture
def asked(monkeypatch):
    """The programs that were asked for: their files and constants."""
    programs = set()

    def load_program(file, name, constants, threads, shared, device=0):
        sources = compiler.list_sources(compiler.FOLDER / file)
        programs.add((file, compiler.choose_constants(constants, sources)))
        return driver.Program(0, shared, threads)

    monkeypatch.setattr(driver, "load_program", load_program)
    forget_programs()
    yield programs
    forget_programs()


@pytest.fixture
def nvrtc(monkeypatch):
    """NVRTC itself, which needs no GPU."""
    library = load_nvrtc()
    if library is None:
        pytest.skip(f"{PACKAGE} is not installed")
    monkeypatch.setattr(compiler, "load_compiler", lambda: library)


def check_programs(programs):
    with ThreadPoolExecutor(2) as threads:
        codes = list(threads.map(lambda program: compile_program(*program, HOPPER), sorted(programs)))
    assert all(code.startswith(b"\x7fELF") for code in codes)


@pytest.mark.parametrize(("schedule", "cell", "dtype", "products", "turns"), NETWORKS)
def test_nvrtc_compiles_the_programs_of_a_network(nvrtc, asked, schedule, cell, dtype, products, turns):
    limit, peepholes = 227 * 1024, cell == "lstm"
    layout = scan.choose_layout(max(schedule.sizes), dtype.itemsize, products, CELLS[cell].gates)
    # one sequence: an LSTM has fewer registers for weights
    for chosen in {layout, scan.choose_registers(schedule, layout, dtype.itemsize, 1, 1, 132)}:
        scan.load_forward(schedule, cell, dtype, chosen, True, 0, limit, turns, peepholes)
        scan.load_backward(schedule, cell, dtype, chosen, 0, limit, turns, peepholes)
    gradients.load_programs(schedule, dtype, CELLS[cell].gates, products, 4, True, 16, 0)
    assert {file for file, _ in asked} == {
        "drive.cu", "pack.cu", "scan_forward.cu", "hold.cu", "scan_backward.cu", "gradients.cu"
    }  # fmt: skip
    check_programs(asked)


@pytest.mark.parametrize(
    ("cell", "dtype", "units"),
    [
        ("relu", torch.float32, small.MOST_UNITS),
        ("lstm", torch.float32, small.MOST_UNITS),
        ("lstm", torch.bfloat16, small.MOST_UNITS_IN_REGISTERS),
        ("gru", torch.float32, 100),
        ("gru", torch.float16, small.MOST_UNITS_IN_REGISTERS),
    ],
    ids=str,
)
def test_nvrtc_compiles_the_programs_of_small_networks_and_steps(nvrtc, asked, cell, dtype, units):
    gates = CELLS[cell].gates
    for peepholes in {False, cell == "lstm"}:
        small._load_forward(units, 3, dtype, cell, peepholes, 0)
    small._load_backward(units, dtype, cell, 0)
    small._load_gradients(gates, dtype, 0)
    if units > small.MOST_UNITS_IN_REGISTERS and gates > 1:
        small._load_drive(gates, dtype, 0)
    input, h = torch.zeros(2, 3, dtype=dtype), torch.zeros(2, 8 * CELLS[cell].parts, dtype=dtype)
    weights = torch.zeros(8 * gates, 3, dtype=dtype), torch.zeros(8 * gates, 8, dtype=dtype)
    stepping.PreparedStep(Schedule((1, 2), (4, 4)), input, h, *weights, None, cell, None)
    assert len({file for file, _ in asked}) == (5 if units > small.MOST_UNITS_IN_REGISTERS and gates > 1 else 4)
    check_programs(asked)


def test_a_program_with_a_mistake_raises_the_compilers_messages(nvrtc, monkeypatch, tmp_path):
    (tmp_path / "wrong.cu").write_text('extern "C" __global__ void program() { return WIDTH + missing; }')
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    with pytest.raises(
        RuntimeError, match=r'wrong.cu cannot be compiled with .*-DWIDTH=3: (.|\n)*"missing" is undefined'
    ):
        compile_program("wrong.cu", (("WIDTH", 3), ("OTHER", 4)), HOPPER)
