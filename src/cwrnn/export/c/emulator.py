"""A Cortex-M4F in software: it runs a C program, counts its instructions, and reports which numbers it reads.

Unicorn emulates the processor, zig compiles for it, and both come from PyPI. Instructions are counted exactly. Cycles
are not counted: they depend on the flash of a chip, and on the instructions that wait for each other.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...extras import require

TARGET = ("-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4+vfp4d16sp", "-nostdlib", "-static")
"""The options of zig cc for a Cortex-M4 with its FPU, without an operating system and without a library."""
STACK = 0x2000_0000
STACK_BYTES = 0x1_0000
RETURN = 0x3000_0000
"""Where a called function returns to. The emulation ends there."""
PAGE = 0x1000
FPU_IS_ON = 1 << 30
WIDE = (0b11101, 0b11110, 0b11111)
"""The first five bits of the Thumb instructions that have four bytes; others have two."""


class Symbol(NamedTuple):
    """A function or an array of a program."""

    address: int
    size: int
    is_function: bool


class Call(NamedTuple):
    """A function call that has ended."""

    result: int
    """The integer that the function returned, if it returns one."""
    instructions: int
    """How many instructions were executed; 0 unless they are counted."""


class Emulator:
    """A program in the memory of an emulated Cortex-M4F."""

    def __init__(self, program: Path, *, count: bool = True) -> None:
        """Loads a program.

        Args:
            program: an ELF file
            count: whether instructions are counted, which takes time
        """
        unicorn = require("unicorn", extra="export", purpose="the emulated Cortex-M4F")
        self._arm = require("unicorn.arm_const", extra="export", purpose="the emulated Cortex-M4F")
        self._unicorn = unicorn
        self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self._cpu.ctl_set_cpu_model(self._arm.UC_CPU_ARM_CORTEX_M4)
        self.symbols: dict[str, Symbol] = {}
        """All functions and arrays, by name."""
        self._load(program)
        self._cpu.mem_map(STACK, STACK_BYTES)
        self._cpu.mem_map(RETURN, PAGE)
        self._cpu.reg_write(self._arm.UC_ARM_REG_FPEXC, FPU_IS_ON)
        self._instructions = 0
        self._block_instructions: dict[tuple[int, int], int] = {}
        if count:
            self._cpu.hook_add(unicorn.UC_HOOK_BLOCK, self._count_block)

    def _load(self, program: Path) -> None:
        elf_files = require("elftools.elf.elffile", extra="export", purpose="the emulated Cortex-M4F")
        with program.open("rb") as file:
            elf = elf_files.ELFFile(file)
            segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
            start = min(segment["p_vaddr"] for segment in segments) // PAGE * PAGE
            end = max(segment["p_vaddr"] + segment["p_memsz"] for segment in segments)
            self._cpu.mem_map(start, -(-(end - start) // PAGE) * PAGE)
            for segment in segments:
                self._cpu.mem_write(segment["p_vaddr"], segment.data())
            for symbol in elf.get_section_by_name(".symtab").iter_symbols():
                is_function = symbol["st_info"]["type"] == "STT_FUNC"
                if is_function or symbol["st_info"]["type"] == "STT_OBJECT":
                    # in the address of a function, the lowest bit says that its code is Thumb
                    address = symbol["st_value"] & ~1 if is_function else symbol["st_value"]
                    self.symbols[symbol.name] = Symbol(address, symbol["st_size"], is_function)

    def call(self, function: str, *arguments: int) -> Call:
        """Calls a function with up to four integers or addresses, and waits until it returns."""
        arm, before = self._arm, self._instructions
        registers = (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2, arm.UC_ARM_REG_R3)
        for register, value in zip(registers, arguments, strict=False):
            self._cpu.reg_write(register, value)
        self._cpu.reg_write(arm.UC_ARM_REG_SP, STACK + STACK_BYTES)
        self._cpu.reg_write(arm.UC_ARM_REG_LR, RETURN | 1)
        self._cpu.emu_start(self.symbols[function].address | 1, RETURN)
        return Call(self._cpu.reg_read(arm.UC_ARM_REG_R0), self._instructions - before)

    def write(self, array: str, values: NDArray[Any]) -> None:
        """Writes numbers into an array of the program."""
        self._cpu.mem_write(self.symbols[array].address, values.tobytes())

    def read(self, array: str, dtype: Any = np.float32) -> NDArray[Any]:
        """The numbers in an array of the program."""
        symbol = self.symbols[array]
        return np.frombuffer(bytes(self._cpu.mem_read(symbol.address, symbol.size)), dtype)

    def watch_reads(self, arrays: Iterable[str], report: Callable[[str, int], None]) -> None:
        """Calls `report` with the array and the byte in it whenever the program reads from one of `arrays`."""
        for name in arrays:
            start, size, _ = self.symbols[name]

            def hook(
                cpu: Any,
                access: int,
                address: int,
                width: int,
                value: int,
                data: Any,
                name: str = name,
                start: int = start,
            ) -> None:
                report(name, address - start)

            self._cpu.hook_add(self._unicorn.UC_HOOK_MEM_READ, hook, begin=start, end=start + size - 1)

    def _count_block(self, cpu: Any, address: int, size: int, data: Any) -> None:
        """Counts the instructions of a block, which are all executed."""
        count = self._block_instructions.get((address, size))
        if count is None:
            count = self._block_instructions[address, size] = count_thumb(bytes(cpu.mem_read(address, size)))
        self._instructions += count


def count_thumb(code: bytes) -> int:
    """The number of Thumb-2 instructions in a piece of code.

    >>> count_thumb(bytes.fromhex("70b5 2ded020a 7047"))  # push, vpush, bx
    3
    """
    place = count = 0
    while place < len(code):
        place += 4 if code[place + 1] >> 3 in WIDE else 2
        count += 1
    return count
