"""`gemmlab new NAME`: a kernel that already computes the product, and its entry in the catalogue."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from gemmlab.catalogue import load_catalogue, refuse_bad_name
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root, write_text

_TEMPLATES = Path(__file__).parent / "templates"
_NUMBERED = re.compile(r"(\d\d)_\w+\.cu")
# The families of the ladder; other tens are free.
_FAMILIES = "01-29 ladder, 30-49 FP32 upper ladder, 50-69 tensor cores, 90-99 probes"


def create(
    name: str,
    idea: str,
    *,
    number: int | None = None,
    compared_with: str = "tile16",
    root: Path | None = None,
) -> tuple[Path, Path]:
    """Write kernels/NN_<name>.cu and config/variants/<name>.yaml, and load the catalogue with them.

    Args:
        name: of the variant, the two files and the target.
        idea: what the kernel will show, in a line.
        number: NN; the first free number of the ladder (1 to 29) if left out.
        compared_with: the variant that the new one will differ from.
        root: the repository.

    Returns:
        The paths of kernel and entry.

    Raises:
        GemmlabError: the name or number is taken or can't be used, or `compared_with` is no variant.
    """
    root = root or repository_root()
    folder = root / "config" / "variants"
    catalogue = load_catalogue(folder, root)
    refuse_bad_name(name, "argument NAME", root)
    if name in catalogue:
        raise GemmlabError(
            f"{name}: a variant of this name stands in {catalogue[name].origin}; choose another."
        )
    if compared_with not in catalogue:
        raise GemmlabError(
            f"--compared-with {compared_with}: no such variant; known are {', '.join(catalogue)}."
        )
    if not idea.strip() or "\n" in idea:
        raise GemmlabError(f"--idea {idea!r}: expected what the kernel shows, in one line.")
    number = _free_number(root, number)
    kernel = root / "kernels" / f"{number:02}_{name}.cu"
    entry = folder / f"{name}.yaml"
    if entry.exists():
        raise GemmlabError(
            f"{entry.relative_to(root)} exists already; choose another name or add the entry there."
        )
    values = {
        "@NAME@": name,
        "@SOURCE@": str(kernel.relative_to(root)),
        "@COMPARED_WITH@": compared_with,
    }
    write_text(kernel, _fill("kernel.cu", values | {"@IDEA@": idea}))
    # JSON's quotes are YAML's too, so an idea with a colon or a hash stays one text.
    write_text(entry, _fill("variant.yaml", values | {"@IDEA@": json.dumps(idea, ensure_ascii=False)}))
    load_catalogue(folder, root)
    return kernel, entry


def _free_number(root: Path, wanted: int | None) -> int:
    matches = (_NUMBERED.fullmatch(file.name) for file in (root / "kernels").glob("*.cu"))
    taken = {int(match[1]): match[0] for match in matches if match}
    if wanted is None:
        wanted = next((number for number in range(1, 30) if number not in taken), None)
        if wanted is None:
            raise GemmlabError(f"no number from 1 to 29 is free; choose one by --number ({_FAMILIES}).")
    if not 1 <= wanted <= 99:
        raise GemmlabError(f"--number {wanted}: expected 1 to 99 ({_FAMILIES}).")
    if wanted in taken:
        raise GemmlabError(
            f"--number {wanted}: kernels/{taken[wanted]} has it; choose another ({_FAMILIES})."
        )
    return wanted


def _fill(template: str, values: dict[str, str]) -> str:
    text = (_TEMPLATES / template).read_text()
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("name", metavar="NAME", help="of the variant: a letter, then letters, digits and _")
    parser.add_argument(
        "--idea", default="what this kernel shows, in a line", help="what the kernel shows, in a line"
    )
    parser.add_argument(
        "--number", type=int, help=f"of the kernel's file: {_FAMILIES}; a free one if left out"
    )
    parser.add_argument("--compared-with", default="tile16", help="the variant that it differs from (tile16)")


def run(options: argparse.Namespace) -> int:
    """Write the two files and say what to do next."""
    kernel, entry = create(
        options.name, options.idea, number=options.number, compared_with=options.compared_with
    )
    root = repository_root()
    print(
        f"{kernel.relative_to(root)}: a shared tile that is right for every shape; change it into your idea."
    )
    print(f"{entry.relative_to(root)}: its entry; docs/adding-a-kernel.md explains the fields.")
    print(f"Then: snakemake --cores 1 {options.name}")
    return 0
