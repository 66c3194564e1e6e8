"""Run firmware on an emulated Cortex-M4F, and print what it writes to the serial port.

python emulate.py firmware.elf
"""

import sys

from elftools.elf.elffile import ELFFile
from unicorn import UC_ARCH_ARM, UC_MODE_MCLASS, UC_MODE_THUMB, Uc
from unicorn.arm_const import UC_ARM_REG_FPEXC, UC_ARM_REG_SP, UC_CPU_ARM_CORTEX_M4

FLASH, FLASH_BYTES = 0x0800_0000, 256 * 1024
RAM, RAM_BYTES = 0x2000_0000, 32 * 1024
PERIPHERALS, PERIPHERALS_BYTES = 0x4000_0000, 64 * 1024
SYSTEM, SYSTEM_BYTES = 0xE000_E000, 4 * 1024
SERIAL_PORT = 0x4000_4404
END_OF_TRANSMISSION = 4

processor = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
processor.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M4)
processor.mem_map(FLASH, FLASH_BYTES)
processor.mem_map(RAM, RAM_BYTES)
processor.mem_map(SYSTEM, SYSTEM_BYTES)
# the emulator does not watch the register with which firmware switches the FPU on
processor.reg_write(UC_ARM_REG_FPEXC, 1 << 30)

with open(sys.argv[1], "rb") as file:
    for segment in ELFFile(file).iter_segments():
        if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]:
            # where a chip is programmed, not where the program copies it to
            processor.mem_write(segment["p_paddr"], segment.data())


def write(processor: Uc, offset: int, size: int, value: int, data: object) -> None:
    """Print a character that is written to the serial port, or stop at the last one."""
    if PERIPHERALS + offset != SERIAL_PORT:
        return
    if value == END_OF_TRANSMISSION:
        processor.emu_stop()
    else:
        print(chr(value), end="")


# a hook on memory writes would be simpler, but with one the emulator computes wrong digits
processor.mmio_map(PERIPHERALS, PERIPHERALS_BYTES, None, None, write, None)
# the first two words are the stack and the address of the first instruction
stack, reset = (int.from_bytes(processor.mem_read(FLASH + place, 4), "little") for place in (0, 4))
processor.reg_write(UC_ARM_REG_SP, stack)
processor.emu_start(reset | 1, 0, timeout=10_000_000)
