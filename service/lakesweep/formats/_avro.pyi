from array import array
from enum import IntEnum

class ContainerError(ValueError): ...

class Op(IntEnum):
    SKIP_NUMBER = 0
    SKIP_FIXED = 1
    SKIP_BYTES = 2
    SKIP_BOOLEAN = 3
    SKIP_ENUM = 4
    UNION = 5
    JUMP = 6
    LOOP = 7
    TAKE = 8
    TAKE_NULL = 9
    TAKE_LIST = 10

class Kind(IntEnum):
    INT = 0
    LONG = 1
    BYTES = 2
    LIST = 3

class Memory: ...

class Reader:
    def __init__(self, code: array[int], kinds: bytes, longest: int = ...) -> None: ...
    def read(self, blocks: list[bytes], rows: list[int]) -> bool: ...
    def finish(self) -> list[tuple[int, int, list[Memory | None]]]: ...

class Block:
    @property
    def rows(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

def read_long(data: bytes, position: int) -> tuple[int, int]: ...
def step(data: bytes, position: int, sync: bytes) -> list[Block]: ...
