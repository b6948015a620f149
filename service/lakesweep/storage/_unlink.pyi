from typing import Final

NOT_A_FILE: Final = -1

def remove(paths: list[bytes], *, directories: bool = False) -> list[tuple[int, int]]: ...
