"""What a line of arithmetic comes to, read as a person would read it."""

import math
import re


def worth(written: str) -> float:
    plain = written.replace("−", "-").replace("·", "*").replace("∞", "inf").replace("^", "**")
    plain = re.sub(r"(?<=\d),(?=\d)", ".", plain).replace(";", ",")  # as Portuguese writes numbers and lists
    plain = re.sub(r"… \((?:mais )?\d+ (?:more )?(?:terms?|termos?): ([^)]*)\)", r"(\1)", plain)
    plain = re.sub(r"√(\d[\d.]*)", r"sqrt(\1)", plain).replace("√(", "sqrt(")
    names = {name: getattr(math, name) for name in ("exp", "sqrt", "sin", "cos", "inf")}
    names["sen"] = math.sin
    normal = {"Φ": lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))}
    return eval(plain, {"__builtins__": {}}, names | normal | {"max": max})
