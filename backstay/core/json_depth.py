"""How deep JSON may be nested. Python's own bound depends on the depth of the call stack; this one is fixed."""

from typing import Any, Final

NESTING_MAX: Final = 128


def too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(NESTING_MAX):
        if not level:
            return False
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
    return True
