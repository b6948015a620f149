from typing import Final

NOT_A_FILE: Final = -1
NOT_TRIED: Final = -2

def steady_ns() -> int: ...
def remove(paths: list[bytes], *, directories: bool = False, until: int = 0) -> list[tuple[int, int]]: ...
