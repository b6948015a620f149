from typing import Final

NOT_A_FILE: Final = -1
NOT_TRIED: Final = -2
ANOTHER_FILE: Final = -3

def steady_ns() -> int: ...
def remove(
    paths: list[bytes],
    *,
    directories: bool = False,
    until: int = 0,
    written_ms: list[int | None] | None = None,
    by_change: bool = True,
) -> list[tuple[int, int]]: ...
